/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package why

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

const fieldManager = "kubectl-nsinit-why"

// fix shows the remedies that can be applied, or applies the one with the digest of --confirm.
func (o *Options) fix(ctx context.Context, diagnoser diagnosis.Diagnoser, line *cmdutil.Line) error {
	fixes, err := diagnoser.Fixes(ctx, o.Args[0])
	line.End()
	switch {
	case apierrors.IsNotFound(err):
		return cmdutil.NoNamespace(o.Args[0])
	case err != nil:
		return err
	}
	if o.Confirm == "" {
		return o.PrintFlags.Print(o.Out, fixes, func(out io.Writer) error { return o.fixes(out, fixes) })
	}
	i := slices.IndexFunc(fixes.Items, func(fix diagnosis.Fix) bool { return fix.Digest == o.Confirm })
	if i < 0 {
		return fmt.Errorf("the state of namespace %q changed, or the digest %q is wrong; nothing was changed. %s", o.Args[0], o.Confirm, o.digests(fixes))
	}
	fix := &fixes.Items[i]
	if err := o.mayDelete(ctx, fix); err != nil {
		return err
	}
	var created types.UID
	for n, request := range fix.Requests {
		if request.Created && bool(o.DryRun) {
			continue // it was not created
		}
		if created, err = o.send(ctx, request, created); err != nil {
			return o.failed(fix, n, err)
		}
	}
	fix.Applied = !bool(o.DryRun)
	fixes.Items = fixes.Items[i : i+1]
	return o.PrintFlags.Print(o.Out, fixes, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "namespace/%s: applied%s: %s\n", o.Args[0], o.DryRun.Suffix(), printable.Line(fix.Description))
		return err
	})
}

// mayDelete checks that the caller may delete the namespace, if the fix creates it first. Otherwise, it would stay, and its content
// would be in use.
func (o *Options) mayDelete(ctx context.Context, fix *diagnosis.Fix) error {
	if !slices.ContainsFunc(fix.Requests, func(request diagnosis.Request) bool { return request.Created }) {
		return nil
	}
	name := o.Args[0]
	review, err := o.Clients.Core.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: name, Verb: "delete", Version: "v1", Resource: "namespaces", Name: name},
	}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("cannot check whether you may delete namespace %q after it is created; nothing was changed: %w", name, err)
	case !review.Status.Allowed:
		return fmt.Errorf("you have no permission to delete namespace %q after it is created; nothing was changed: ask an administrator for the verb delete of namespaces", name)
	}
	return nil
}

// failed returns the error for a request that failed, with what to do.
func (o *Options) failed(fix *diagnosis.Fix, n int, err error) error {
	request := fix.Requests[n]
	next := fmt.Sprintf("run kubectl nsinit why %s --fix%s again", o.Args[0], o.patience())
	if request.Created {
		next = fmt.Sprintf("namespace %q exists again with its content, which is in use: run kubectl delete namespace %s", o.Args[0], o.Args[0])
	}
	return fmt.Errorf("%d of %d requests succeeded, then %s %s failed: %w; %s", n, len(fix.Requests), request.Verb, request.Path, changed(err), next)
}

// patience returns the flag for commands that the user is to run. It decides which causes and remedies there are.
func (o *Options) patience() string {
	if o.Patience == diagnosis.DefaultPatience {
		return ""
	}
	return " --patience=" + o.Patience.String()
}

// send sends a request as the caller, and returns the UID of the object. Created is that of the object that the request before
// created.
func (o *Options) send(ctx context.Context, r diagnosis.Request, created types.UID) (types.UID, error) {
	body, err := r.For(created, bool(o.DryRun))
	if err != nil {
		return "", err
	}
	request := o.Clients.REST.Verb(r.Verb).AbsPath(r.Path)
	if r.Verb != http.MethodDelete {
		request.Param("fieldManager", fieldManager)
	}
	if o.DryRun {
		request.Param("dryRun", metav1.DryRunAll)
	}
	result := request.SetHeader("Content-Type", r.ContentType).SetHeader("Accept", "application/json").Body([]byte(body)).Do(ctx)
	if err := result.Error(); err != nil { // that of Raw is without the message of kube-apiserver
		return "", err
	}
	data, err := result.Raw()
	var answer metav1.PartialObjectMetadata
	if err == nil {
		err = json.Unmarshal(data, &answer)
	}
	return answer.UID, err
}

// changed explains the errors for an object that is not the one that was read. Of requests with code 422, these are the JSON patches
// that cannot be applied because a test fails. Objects that are not valid, and refusals of admission, have other messages.
func changed(err error) error {
	patchFailed := apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "", 0, false)
	untested := apierrors.IsInvalid(err) && err.Error() == patchFailed.Error()
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || untested {
		return fmt.Errorf("the object has changed since the diagnosis: %w", err)
	}
	return err
}

// digests names the fixes in a message.
func (o *Options) digests(fixes *diagnosis.FixList) string {
	if len(fixes.Items) == 0 {
		return "No remedy can be applied now; run kubectl nsinit why " + fixes.Namespace + o.patience()
	}
	var all []string
	for _, fix := range fixes.Items {
		all = append(all, fmt.Sprintf("%s (%s)", fix.Digest, fix.Cause))
	}
	return "The digests are now: " + strings.Join(all, ", ")
}

// fixes prints remedies for people.
func (o *Options) fixes(to io.Writer, fixes *diagnosis.FixList) error {
	var out strings.Builder
	if len(fixes.Items) == 0 {
		fmt.Fprintf(&out, "Namespace %q: no remedy can be applied by this command. To see the causes and all remedies, run kubectl nsinit why %s%s.\n", fixes.Namespace, fixes.Namespace, o.patience())
	} else {
		fmt.Fprintf(&out, "Namespace %q: nothing was changed. This command can apply:\n", fixes.Namespace)
	}
	for i, fix := range fixes.Items {
		fmt.Fprintf(&out, "\n%d. %s: %s\n", i+1, fix.Cause, printable.Line(fix.Description))
		if fix.Risk != "" {
			fmt.Fprintf(&out, "   Risk: %s\n", fix.Risk)
		}
		writeController(&out, fix.Controller)
		out.WriteString("   It sends:\n")
		for _, request := range fix.Requests[:min(len(fix.Requests), objectsShown)] {
			fmt.Fprintf(&out, "   %s %s\n     %s\n", request.Verb, printable.Line(request.Path), printable.Line(request.Body))
		}
		if more := len(fix.Requests) - objectsShown; more > 0 {
			fmt.Fprintf(&out, "   and %d more, which --output=json shows\n", more)
		}
		fmt.Fprintf(&out, "   To apply it:\n         kubectl nsinit why %s --fix --confirm=%s%s\n", fixes.Namespace, fix.Digest, o.patience())
	}
	_, err := io.WriteString(to, out.String())
	return err
}
