/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package objects

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/nsinit/nsinit/artifacts"
	"github.com/nsinit/nsinit/pkg/expressions"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

const (
	// prefix begins the names of the policies. The names of stamps end with the resource.
	prefix = "nsinit-objects-"
	// probe is the name of the Lease that shows which version of the policies kube-apiserver evaluates, and of the policy for it.
	probe = prefix + "probe"
)

// maxList is the size of a list in an expression, in bytes. kube-apiserver compiles expressions of at most 100,000 characters.
const maxList = 90_000

// selectedPrefix begins the names of the variables that say whether an initializer selects an object. Its number follows.
const selectedPrefix = "selected"

// registered is an initializer of a configuration.
type registered struct {
	*v1alpha1.Initializer
	configuration *v1alpha1.InitializerConfiguration
}

// ordered returns the initializers of all configurations in the order in which they act. Of several entries with the same name, only the
// first has an effect.
func ordered(configurations []*v1alpha1.InitializerConfiguration) (all []registered) {
	names := sets.New[string]()
	for _, c := range slices.SortedFunc(slices.Values(configurations), func(a, b *v1alpha1.InitializerConfiguration) int { return cmp.Compare(a.Name, b.Name) }) {
		for i := range c.Initializers {
			if initializer := &c.Initializers[i]; c.DeletionTimestamp == nil && !names.Has(initializer.Name) {
				names.Insert(initializer.Name)
				all = append(all, registered{initializer, c})
			}
		}
	}
	return all
}

// isServed says whether a program has reported that it serves an initializer, or need not report.
func (r registered) isServed() bool {
	if r.Activation == nil || *r.Activation != v1alpha1.ActivationWhenServed {
		return true
	}
	entry := helper.ReportOf(r.configuration.Status.Initializers, r.Name)
	return entry != nil && entry.ReportTime != nil
}

// reporters returns the namespaces of the service accounts that serve an initializer. Their objects do not wait for it, so that it does
// not wait for itself. This gives no right: who reports can also remove the name.
func reporters(configurations []*v1alpha1.InitializerConfiguration, name string) []string {
	namespaces := sets.New[string]()
	for _, configuration := range configurations {
		for _, entry := range configuration.Status.Initializers {
			if namespace, _, err := serviceaccount.SplitUsername(entry.Reporter); err == nil && entry.Name == name {
				namespaces.Insert(namespace)
			}
		}
	}
	return sets.List(namespaces)
}

// compiled is one of the policies, or that it must not exist.
type compiled struct {
	Name   string
	Policy *admissionregistrationv1.MutatingAdmissionPolicy
}

// compile returns the policies in the order in which they are written, and their version. The probe, which shows the version, is the last.
func compile(configurations []*v1alpha1.InitializerConfiguration, exemptions *installation.ExemptionList, own string) (all []compiled, version string, err error) {
	for document := range strings.SplitSeq(installation.InNamespace(artifacts.ObjectsStamp(), own), "\n---\n") {
		template := &admissionregistrationv1.MutatingAdmissionPolicy{}
		if err := yaml.Unmarshal([]byte(document), template); err != nil {
			return nil, "", err
		}
		if template.Name == probe {
			all = append(all, compiled{probe, template})
			continue
		}
		stamp, others := complete(template, strings.TrimPrefix(template.Name, prefix), configurations, exemptions, own)
		all = append(all, compiled{template.Name, stamp}, compiled{template.Name + "-others", others})
	}
	data, err := json.Marshal(all)
	return all, fmt.Sprintf("v%x", sha256.Sum256(data))[:16], err
}

// complete returns the policy for the namespaces that an initializer of a resource can select, and the one for the others. There may be
// none of the one or the other.
func complete(template *admissionregistrationv1.MutatingAdmissionPolicy, resource string, configurations []*v1alpha1.InitializerConfiguration,
	exemptions *installation.ExemptionList, own string,
) (stamp, others *admissionregistrationv1.MutatingAdmissionPolicy) {
	system := []string{metav1.NamespaceSystem, own}
	var notExempt []admissionregistrationv1.MatchCondition
	for _, exempt := range []struct {
		values []string
		is     string
	}{
		{append(system, exemptions.Values(installation.KeyNamespaces)...), "request.namespace in %s"},
		{exemptions.Values(installation.KeyNamePrefixes), "%s.exists(prefix, request.namespace.startsWith(prefix))"},
		{exemptions.Values(installation.KeyUsers), "request.userInfo.username in %s"},
		{exemptions.Values(installation.KeyGroups), "request.userInfo.?groups.orValue([]).exists(group, group in %s)"},
	} {
		for _, some := range lists(exempt.values) {
			notExempt = append(notExempt, admissionregistrationv1.MatchCondition{
				Name: fmt.Sprintf("not-exempt-%d", len(notExempt)), Expression: fmt.Sprintf("!("+exempt.is+")", some)})
		}
	}
	stamp, others = template.DeepCopy(), template.DeepCopy()
	stamp.Spec.MatchConditions, stamp.Spec.Variables = notExempt, variables()
	var selectors []*metav1.LabelSelector
	pending := []string{`""`}
	for i, initializer := range ordered(configurations) {
		if !initializer.Matches(resource) || !initializer.isServed() {
			continue
		}
		// The cost of each variable is limited, so each condition is one. The names begin with that of the initializer, see culprit.
		// kube-apiserver names the variable if a condition fails, so it also has the name of the initializer.
		name := fmt.Sprintf("%s%d_%s", selectedPrefix, i, strings.NewReplacer(".", "_", "-", "_").Replace(initializer.Name))
		selection := []string{"true"}
		if namespaces := reporters(configurations, initializer.Name); len(namespaces) > 0 {
			selection = append(selection, fmt.Sprintf("!(request.namespace in %s)", list(namespaces)))
		}
		selection = append(selection, selects(initializer.NamespaceSelector)...)
		for j, condition := range initializer.MatchConditions {
			v := admissionregistrationv1.Variable{Name: fmt.Sprintf("%s_%d", name, j), Expression: inLoops(condition.Expression)}
			stamp.Spec.Variables, selection = append(stamp.Spec.Variables, v), append(selection, "variables."+v.Name)
		}
		stamp.Spec.Variables = append(stamp.Spec.Variables, admissionregistrationv1.Variable{Name: name, Expression: strings.Join(selection, " && ")})
		selectors, pending = append(selectors, initializer.NamespaceSelector), append(pending, fmt.Sprintf(`variables.%s ? %s : ""`, name, strconv.Quote(initializer.Name)))
	}
	names := func(names []string) admissionregistrationv1.Variable {
		return admissionregistrationv1.Variable{Name: "pending", Expression: "[" + strings.Join(names, ", ") + `].filter(n, n != "")`}
	}
	stamp.Spec.Variables = append(stamp.Spec.Variables, names(pending))
	others.Spec.MatchConditions, others.Spec.Variables = notExempt, []admissionregistrationv1.Variable{names(pending[:1])}
	others.Name += "-others"
	others.Spec.MatchConstraints.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: v1alpha1.LabelInitializing, Operator: metav1.LabelSelectorOpExists}}}
	in, out := common(selectors)
	// kube-apiserver parses the selectors for each request of any resource, so exempt namespaces are a condition. Those without which a cluster
	// cannot recover are also here: a condition can fail.
	stamp.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: append(in, metav1.LabelSelectorRequirement{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: sets.List(sets.New(system...))})}
	others.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: out}
	switch {
	case len(selectors) == 0:
		return nil, others
	case len(in) == 0:
		return stamp, nil
	}
	return stamp, others
}

// common returns a requirement that every namespace meets that one of the selectors selects, and its opposite. There is none if the selectors
// have no label in common.
func common(selectors []*metav1.LabelSelector) (in, out []metav1.LabelSelectorRequirement) {
	required := map[string][][]string{} // the values of each label that all selectors so far require. If a label has to exist, there are none
	for i, selector := range selectors {
		for _, r := range requirementsOf(selector) {
			if values := required[r.Key]; len(values) >= i && (r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpExists) {
				required[r.Key] = append(values[:i], r.Values)
			}
		}
	}
	maps.DeleteFunc(required, func(_ string, values [][]string) bool { return len(values) < len(selectors) })
	if len(required) == 0 {
		return nil, nil
	}
	key := slices.Min(slices.Collect(maps.Keys(required)))
	is, not, values := metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, sets.List(sets.New(slices.Concat(required[key]...)...))
	if slices.ContainsFunc(required[key], func(values []string) bool { return len(values) == 0 }) {
		is, not, values = metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist, nil
	}
	return []metav1.LabelSelectorRequirement{{Key: key, Operator: is, Values: values}}, []metav1.LabelSelectorRequirement{{Key: key, Operator: not, Values: values}}
}

// variables returns the variables that selections read: the namespace and its creator, as in pkg/expressions.
func variables() []admissionregistrationv1.Variable {
	return []admissionregistrationv1.Variable{
		{Name: "labels", Expression: `namespaceObject.metadata.?labels.orValue({})`},
		{Name: "annotations", Expression: `namespaceObject.metadata.?annotations.orValue({})`},
		{Name: "requester", Expression: `variables.annotations[?"` + v1alpha1.AnnotationCreatedBy + `"].orValue("")`},
		{Name: "onBehalfOf", Expression: `variables.annotations[?"` + v1alpha1.AnnotationOnBehalfOf + `"].orValue("")`},
		{Name: "creator", Expression: `variables.requester != "" && variables.onBehalfOf != "" ? variables.onBehalfOf : variables.requester`},
		{Name: "creatorGroups", Expression: `variables.creator != variables.requester ? ["` + user.AllAuthenticated + `"] : ` +
			bounded(`variables.annotations[?"`+v1alpha1.AnnotationCreatedByGroups+`"].orValue("").split("\n").filter(group, group != "")`, "groups")},
		{Name: "namespaceObject", Expression: `{"metadata": {"name": dyn(namespaceObject.metadata.name), "uid": dyn(namespaceObject).metadata.uid, ` +
			`"labels": dyn(` + bounded("variables.labels", "labels") + `), "annotations": dyn(` + bounded("variables.annotations", "annotations") + `)}}`},
	}
}

// requirementsOf returns the requirements of a selector in the order of their keys.
func requirementsOf(selector *metav1.LabelSelector) (requirements []metav1.LabelSelectorRequirement) {
	if selector == nil {
		return nil
	}
	requirements = slices.Clone(selector.MatchExpressions)
	for key, value := range selector.MatchLabels {
		requirements = append(requirements, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}})
	}
	slices.SortStableFunc(requirements, func(a, b metav1.LabelSelectorRequirement) int { return cmp.Compare(a.Key, b.Key) })
	return requirements
}

// selects returns the conditions of a selector.
func selects(selector *metav1.LabelSelector) (conditions []string) {
	for _, r := range requirementsOf(selector) {
		is := strconv.Quote(r.Key) + " in variables.labels"
		if len(r.Values) > 0 {
			is += fmt.Sprintf(" && variables.labels[%s] in %s", strconv.Quote(r.Key), list(r.Values))
		}
		if r.Operator == metav1.LabelSelectorOpNotIn || r.Operator == metav1.LabelSelectorOpDoesNotExist {
			is = "!(" + is + ")"
		}
		conditions = append(conditions, is)
	}
	return conditions
}

// inLoops returns a condition of an initializer for a policy. The names that it uses are those of pkg/expressions, so it gets them from
// loops over one item. A name that it does not use is not evaluated, because this can fail.
func inLoops(condition string) string {
	text := "(" + condition + "\n)"
	for _, name := range []string{"namespaceObject", "requester", "creatorGroups", "creator"} {
		if strings.Contains(condition, name) {
			text = fmt.Sprintf("[variables.%[1]s].exists(%[1]s, %[2]s)", name, text)
		}
	}
	return text
}

// bounded returns an expression that fails if a list or map has more entries than a condition can read, as in pkg/expressions.
func bounded(entries, what string) string {
	return fmt.Sprintf(`[%[1]s].map(e, size(e) <= %[2]d ? e : {"": e}["there are more than %[2]d %[3]s"])[0]`, entries, expressions.MaxEntries, what)
}

// culprit returns the configuration with the expression because of which kube-apiserver refuses a policy, or nil.
func culprit(err error, policy *admissionregistrationv1.MutatingAdmissionPolicy, configurations []*v1alpha1.InitializerConfiguration) *v1alpha1.InitializerConfiguration {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsInvalid(err) || status.ErrStatus.Details == nil {
		return nil
	}
	for _, cause := range status.ErrStatus.Details.Causes {
		variable, initializer := 0, 0
		if n, _ := fmt.Sscanf(cause.Field, "spec.variables[%d]", &variable); n == 1 && variable < len(policy.Spec.Variables) {
			if n, _ := fmt.Sscanf(policy.Spec.Variables[variable].Name, selectedPrefix+"%d", &initializer); n == 1 {
				return ordered(configurations)[initializer].configuration
			}
		}
	}
	return nil
}

// lists returns lists in CEL that have all values together. Each is short enough for an expression.
func lists(values []string) (all []string) {
	var some []string
	size := 0
	for _, value := range slices.Sorted(slices.Values(values)) {
		length := len(strconv.Quote(value)) + len(", ")
		if size > 0 && size+length > maxList {
			all, some, size = append(all, list(some)), nil, 0
		}
		some, size = append(some, value), size+length
	}
	if size > 0 {
		all = append(all, list(some))
	}
	return all
}

// list returns a list of texts in CEL.
func list(values []string) string {
	quoted := make([]string, 0, len(values))
	for _, value := range slices.Sorted(slices.Values(values)) {
		quoted = append(quoted, strconv.Quote(value))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
