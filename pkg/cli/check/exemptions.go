/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// malformed adds the lines of the list of exemptions that have no effect.
func (i *inspection) malformed(check string, configMap *corev1.ConfigMap) {
	list := installation.ParseExemptions(configMap)
	for _, line := range list.Malformed {
		i.add(check, Warning, "kubectl --namespace "+printable.WordOr(configMap.Namespace, "NAMESPACE")+" edit configmap "+configMap.Name, "%s: %s", list.Source, line)
	}
	if len(list.Malformed) == 0 {
		i.add(check, OK, "", "%s exists; entries: %d", list.Source, list.Len())
	}
}

// Creation is the report on a namespace that would be created.
type Creation struct {
	metav1.TypeMeta `json:",inline"`
	Name            string   `json:"name"`
	Creator         string   `json:"creator"`
	Groups          []string `json:"groups"`
	// Closed says whether the stamp closes the namespace.
	Closed bool `json:"closed"`
	// ExemptBy is the entry of the list of exemptions that applies, if it does not.
	ExemptBy *installation.Exemption `json:"exemptBy,omitempty"`
	Message  string                  `json:"message"`
	// Malformed are the lines of the list that have no effect.
	Malformed []string `json:"malformed,omitempty"`
	// Source names the list.
	Source string `json:"-"`
}

// creation reports whether a namespace would be closed that a user creates, with a name that may be generated.
func creation(ctx context.Context, clients *cmdutil.Clients, user cmdutil.Future, name, generateName string) (*Creation, error) {
	of := installation.Creation{Name: name, GenerateName: generateName}
	var err error
	if of.Creator, of.Groups, err = user.User(ctx, clients.Core); err != nil {
		return nil, err
	}
	list, err := clients.Exemptions(ctx)
	if err != nil {
		return nil, err
	}
	result := &Creation{TypeMeta: metav1.TypeMeta{Kind: "CreationCheck", APIVersion: cmdutil.APIVersion},
		Name: of.Name, Creator: of.Creator, Groups: append([]string{}, of.Groups...), Malformed: list.Malformed, ExemptBy: list.Exempt(of), Source: list.Source}
	result.Closed = result.ExemptBy == nil
	result.Message = fmt.Sprintf("namespace %q, created by user %q", of.Name, of.Creator)
	if len(of.Groups) > 0 {
		result.Message += " of groups " + quoted(of.Groups)
	}
	if result.Closed {
		result.Message += ", is closed until it is initialized: no line of " + list.Source + " exempts it"
	} else {
		result.Message += fmt.Sprintf(", is exempt by %s: %s", list.Source, result.ExemptBy)
	}
	return result, nil
}

func quoted(values []string) string {
	texts := make([]string, len(values))
	for i := range values {
		texts[i] = strconv.Quote(values[i])
	}
	return strings.Join(texts, ", ")
}

// print prints the report for people.
func (c *Creation) print(out io.Writer) error {
	_, err := fmt.Fprintln(out, printable.Line(c.Message))
	for _, line := range c.Malformed {
		_, _ = fmt.Fprintf(out, "without effect: %s\n", line)
	}
	return err
}
