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

// exemptSelf returns why the user who runs the command is exempt, or "".
func exemptSelf(ctx context.Context, clients *cmdutil.Clients, name, generateName string) string {
	list, listErr := clients.Exemptions(ctx)
	user, err := cmdutil.Self(ctx, clients.Core)
	if listErr != nil || err != nil {
		return ""
	}
	exemption := list.Exempt(installation.Creation{Name: name, GenerateName: generateName, Creator: user.Username, Groups: user.Groups})
	if exemption == nil {
		return ""
	}
	return fmt.Sprintf("user %q is exempt by %s: %s", user.Username, list.Source, exemption)
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
}

// creation reports whether a namespace of a name would be closed. Without a creator, it is the user who runs the command.
func creation(ctx context.Context, clients *cmdutil.Clients, name, creator string, groups []string) (*Creation, error) {
	if creator == "" {
		user, err := cmdutil.Self(ctx, clients.Core)
		if err != nil {
			return nil, fmt.Errorf("%w; name the creator with --creator", err)
		}
		creator = user.Username
		if len(groups) == 0 {
			groups = user.Groups
		}
	}
	list, err := clients.Exemptions(ctx)
	if err != nil {
		return nil, err
	}
	result := &Creation{TypeMeta: metav1.TypeMeta{Kind: "CreationCheck", APIVersion: cmdutil.APIVersion},
		Name: name, Creator: creator, Groups: append([]string{}, groups...), Malformed: list.Malformed,
		ExemptBy: list.Exempt(installation.Creation{Name: name, Creator: creator, Groups: groups})}
	result.Closed = result.ExemptBy == nil
	result.Message = fmt.Sprintf("namespace %q, created by user %q", name, creator)
	if len(groups) > 0 {
		result.Message += " of groups " + quoted(groups)
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
