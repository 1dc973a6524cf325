/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package objects

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/pkg/installation"
)

// registry has the policies and bindings of a fake kube-apiserver, by resource and name.
type registry struct {
	objects map[string]*registryObject
	// policies are the names of the policies in the order in which they are written, and bindings the names of the bindings.
	policies, bindings []string
	// refuse returns why a policy is not written.
	refuse func(name string, spec admissionregistrationv1.MutatingAdmissionPolicySpec) error
	// after is called after a policy was written.
	after func(name string)
	// dryRun says that the request is a dry run.
	dryRun bool
	// unsupported says that kube-apiserver does not serve the resources.
	unsupported bool
}

type registryObject struct {
	metav1.PartialObjectMetadata
	spec json.RawMessage
}

// newRegistry returns what the manifests of the component install.
func newRegistry() *registry {
	r := &registry{objects: map[string]*registryObject{}, refuse: func(string, admissionregistrationv1.MutatingAdmissionPolicySpec) error { return nil }, after: func(string) {}}
	r.store(policies, installation.ObjectsRelease, nil, nil)
	r.store(bindings, installation.ObjectsRelease, nil, nil)
	return r
}

// store writes an object. Its generation changes with its spec.
func (r *registry) store(resource, name string, owners []metav1.OwnerReference, spec json.RawMessage) *metav1.PartialObjectMetadata {
	object := r.objects[resource+"/"+name]
	if object == nil {
		object = &registryObject{PartialObjectMetadata: metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}}
		r.objects[resource+"/"+name] = object
	}
	if string(object.spec) != string(spec) {
		object.Generation++
	}
	object.OwnerReferences, object.spec = owners, spec
	return object.DeepCopy()
}

// policy returns the spec of a policy.
func (r *registry) policy(t *testing.T, name string) (spec admissionregistrationv1.MutatingAdmissionPolicySpec) {
	t.Helper()
	if err := json.Unmarshal(r.objects[policies+"/"+name].spec, &spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

// add adds a condition to a policy, as another client does.
func (r *registry) add(t *testing.T, name string) {
	t.Helper()
	spec := r.policy(t, name)
	spec.MatchConditions = append(spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: "never", Expression: "false"})
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	r.store(policies, name, nil, data)
}

// dryRuns is a client that reports dry runs, which the fake client does not.
type dryRuns struct {
	metadata.Interface
	registry *registry
}

type dryRunGetter struct {
	metadata.Getter
	registry *registry
}

func (d dryRuns) Resource(resource schema.GroupVersionResource) metadata.Getter {
	return dryRunGetter{d.Interface.Resource(resource), d.registry}
}

func (d dryRunGetter) Patch(ctx context.Context, name string, patchType types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*metav1.PartialObjectMetadata, error) {
	d.registry.dryRun = len(options.DryRun) > 0
	defer func() { d.registry.dryRun = false }()
	return d.Getter.Patch(ctx, name, patchType, data, options, subresources...)
}

// client returns a client of the registry.
func (r *registry) client() *metadatafake.FakeMetadataClient {
	client := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	client.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if r.unsupported {
			return true, nil, apierrors.NewNotFound(action.GetResource().GroupResource(), "")
		}
		list := &metav1.List{}
		for _, key := range slices.Sorted(maps.Keys(r.objects)) {
			if strings.HasPrefix(key, action.GetResource().Resource+"/") {
				list.Items = append(list.Items, runtime.RawExtension{Object: r.objects[key].DeepCopy()})
			}
		}
		return true, list, nil
	})
	client.PrependReactor("delete", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		key := action.GetResource().Resource + "/" + action.(clienttesting.DeleteAction).GetName()
		if r.objects[key] == nil {
			return true, nil, apierrors.NewNotFound(action.GetResource().GroupResource(), key)
		}
		delete(r.objects, key)
		return true, nil, nil
	})
	client.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch, resource := action.(clienttesting.PatchAction), action.GetResource().Resource
		var owners []metav1.OwnerReference
		var spec json.RawMessage
		var err error
		if patch.GetPatchType() == types.ApplyPatchType {
			var applied struct {
				Metadata metav1.ObjectMeta
				Spec     json.RawMessage
			}
			err = json.Unmarshal(patch.GetPatch(), &applied)
			owners, spec = applied.Metadata.OwnerReferences, applied.Spec
			if applied.Metadata.Name != patch.GetName() {
				err = apierrors.NewBadRequest("the name of the object does not match the name on the URL")
			}
		} else {
			var operations []struct {
				Op, Path string
				Value    json.RawMessage
			}
			if err = json.Unmarshal(patch.GetPatch(), &operations); err == nil {
				err = json.Unmarshal(operations[0].Value, &owners)
				spec = operations[1].Value
			}
		}
		if err != nil {
			return true, nil, err
		}
		if resource == bindings {
			r.bindings = append(r.bindings, patch.GetName())
			return true, r.store(resource, patch.GetName(), owners, spec), nil
		}
		if !r.dryRun {
			r.policies = append(r.policies, patch.GetName())
		}
		var typed admissionregistrationv1.MutatingAdmissionPolicySpec
		if err := json.Unmarshal(spec, &typed); err != nil {
			return true, nil, err
		}
		if err := r.refuse(patch.GetName(), typed); err != nil {
			return true, nil, err
		}
		if r.dryRun {
			return true, &metav1.PartialObjectMetadata{}, nil
		}
		written := r.store(resource, patch.GetName(), owners, spec)
		r.after(patch.GetName())
		return true, written, nil
	})
	return client
}
