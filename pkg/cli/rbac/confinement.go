/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package rbac

import (
	"fmt"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// confinePrefix begins the names of the policies.
const confinePrefix = "nsinit-confine-"

// parseResources reads resources in the form RESOURCE or RESOURCE.GROUP.
func parseResources(texts []string) ([]schema.GroupResource, error) {
	var resources []schema.GroupResource
	for _, text := range texts {
		resource := schema.ParseGroupResource(text)
		problems := content.IsDNS1123Label(resource.Resource)
		if resource.Group != "" {
			problems = append(problems, content.IsDNS1123Subdomain(resource.Group)...)
		}
		if len(problems) > 0 {
			return nil, fmt.Errorf("--confine-to=%s: give RESOURCE or RESOURCE.GROUP, such as configmaps or roles.rbac.authorization.k8s.io: %s", text, problems[0])
		}
		resources = append(resources, resource)
	}
	return resources, nil
}

// confinement returns a policy that lets the initializer write only into closed and terminating namespaces, and only some
// resources. kube-apiserver and nsinit-apiserver evaluate it in addition to RBAC. The initializer can always do what the SDK
// does: record events, hold a Lease in its namespace, write its configuration, and write NamespaceLifecycles and reports, for
// which nsinit-apiserver evaluates no policies.
func (o *Options) confinement() []runtime.Object {
	user := o.subject.Name
	if o.subject.Kind == rbacv1.ServiceAccountKind {
		user = serviceaccount.MakeUsername(o.subject.Namespace, o.subject.Name)
	}
	own, _, _ := serviceaccount.SplitUsername(user) // empty for other users, who hold no Lease
	var allowed, names []string
	for _, resource := range o.resources {
		allowed, names = append(allowed, strconv.Quote(resource.String())), append(names, resource.String())
	}
	exceptions := []string{
		`variables.resource in ["events", "events.events.k8s.io"]`,
		`variables.resource == "leases.coordination.k8s.io" && request.?namespace.orValue("") == ` + strconv.Quote(own),
		`variables.initializes && variables.resource in [` + strings.Join(allowed, ", ") + `]`,
	}
	if o.Configuration != "" {
		exceptions = append(exceptions, `variables.resource == "namespaceinitializerconfigurations.`+v1alpha1.GroupName+`" && request.?name.orValue("") == `+strconv.Quote(o.Configuration))
	}
	permitted := "no resources"
	if len(names) > 0 {
		permitted = "only in namespaces that are initializing or terminating, and only " + strings.Join(names, ", ")
	}
	all := []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete, admissionregistrationv1.Connect}
	meta := metav1.ObjectMeta{Name: confinePrefix + objectName(o.initializer+":"+user)}
	return []runtime.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{Operations: all,
					Rule: admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}}}}}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "initializer", Expression: "request.userInfo.username == " + strconv.Quote(user)}},
			Variables: []admissionregistrationv1.Variable{
				{Name: "resource", Expression: `request.resource.resource + (request.resource.group == "" ? "" : "." + request.resource.group)`},
				{Name: "initializes", Expression: `namespaceObject != null && (namespaceObject.metadata.?labels["` + v1alpha1.LabelInitializing + `"].hasValue() || has(namespaceObject.metadata.deletionTimestamp))`},
			},
			Validations: []admissionregistrationv1.Validation{{
				Expression: strings.Join(exceptions, " || "),
				Reason:     new(metav1.StatusReasonForbidden),
				MessageExpression: `"initializer ` + o.initializer + ` may write ` + permitted +
					`: policy ` + meta.Name + ` refuses " + variables.resource + (request.?namespace.orValue("") == "" ? "" : " in namespace \"" + request.namespace + "\"")`,
			}},
		}},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: meta.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		}},
	}
}
