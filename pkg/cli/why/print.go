/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package why

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// objectsShown bounds the objects of one resource in text.
const objectsShown = 10

// text prints a diagnosis for people.
func (o *Options) text(to io.Writer, d *diagnosis.Diagnosis) error {
	var out strings.Builder
	now := o.Clients.ServerClock.Now()
	verdict := map[diagnosis.State]string{
		diagnosis.Stuck: "stuck: a user has to act", diagnosis.Waiting: "waiting: something is in progress", diagnosis.Healthy: "healthy: it waits for nothing",
	}[d.State]
	labels := labels()
	if d.IfDeleted {
		verdict = map[diagnosis.State]string{
			diagnosis.Stuck: "be blocked until a user acts", diagnosis.Waiting: "be delayed", diagnosis.Healthy: "not be blocked",
		}[d.State]
		labels = map[diagnosis.State]string{diagnosis.Stuck: "BLOCKS", diagnosis.Waiting: "DELAYS", diagnosis.Healthy: "NOTE"}
		fmt.Fprintf(&out, "Namespace %q: %s%s. A deletion would %s.\n", d.Namespace, d.Phase, age(now, d.Since, " for "), verdict)
	} else {
		fmt.Fprintf(&out, "Namespace %q: %s%s, %s.\n", d.Namespace, d.Phase, age(now, d.Since, " for "), verdict)
	}
	for i, finding := range d.Findings {
		writeFinding(&out, now, i+1, labels[finding.State], finding)
	}
	if len(d.Fixable) > 0 {
		fmt.Fprintf(&out, "\nThis command can apply remedies for %s. To see them, run kubectl nsinit why %s --fix%s.\n", join(d.Fixable), d.Namespace, o.patience())
	}
	if len(d.Remaining) > 0 {
		heading := "What is left in it"
		if d.Phase == diagnosis.Active || d.Phase == diagnosis.Initializing {
			heading = "What is deleted in it, and still exists"
		}
		fmt.Fprintf(&out, "\n%s:\n", heading)
		if err := writeRemaining(&out, now, d.Remaining); err != nil {
			return err
		}
	}
	if len(d.Conditions) > 0 && d.State != diagnosis.Healthy {
		out.WriteString("\nIts conditions:\n")
		table := printers.GetNewTabWriter(&out)
		_, _ = fmt.Fprintln(table, "  TYPE\tSTATUS\tAGE\tREASON\tMESSAGE")
		for _, c := range d.Conditions {
			_, _ = fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\n", printable.Line(string(c.Type)), printable.Line(string(c.Status)), age(now, &c.LastTransitionTime, ""), printable.Line(c.Reason), printable.Line(c.Message))
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	writeNotExamined(&out, d.NotExamined)
	_, err := io.WriteString(to, out.String())
	return err
}

// table prints the namespaces that are not healthy, for people.
func (o *Options) table(to io.Writer, list *diagnosis.List) error {
	var out strings.Builder
	now, stuck := o.Clients.ServerClock.Now(), 0
	table := printers.GetNewTabWriter(&out)
	if len(list.Items) > 0 {
		_, _ = fmt.Fprintln(table, "NAMESPACE\tPHASE\tAGE\tSTATE\tCAUSE\tCONTROLLER\tMESSAGE")
	}
	for _, d := range list.Items {
		if d.State == diagnosis.Stuck {
			stuck++
		}
		for _, f := range d.Findings {
			if f.State == d.State {
				_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.Namespace, d.Phase, age(now, d.Since, ""), d.State, f.Cause, controllerOf(f), printable.Line(f.Message))
			}
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(list.Items) > 0 {
		out.WriteString("\n")
	}
	fmt.Fprintf(&out, "%d of %d namespaces are stuck, and %d wait for something in progress.\n", stuck, list.Namespaces, len(list.Items)-stuck)
	if stuck > 0 {
		fmt.Fprintf(&out, "For remedies, run kubectl nsinit why NAMESPACE%s.\n", o.patience())
	}
	if len(list.Cluster) > 0 {
		out.WriteString("\nIn the cluster:\n")
	}
	for i, finding := range list.Cluster {
		writeFinding(&out, now, i+1, labels()[finding.State], finding)
	}
	writeNotExamined(&out, list.NotExamined)
	_, err := io.WriteString(to, out.String())
	return err
}

// labels are the words for the states of findings.
func labels() map[diagnosis.State]string {
	return map[diagnosis.State]string{diagnosis.Stuck: "STUCK", diagnosis.Waiting: "WAITING", diagnosis.Healthy: "NOTE"}
}

func join(causes []diagnosis.Cause) string {
	var names []string
	for _, cause := range causes {
		names = append(names, string(cause))
	}
	return strings.Join(names, ", ")
}

func writeNotExamined(out *strings.Builder, all []string) {
	if len(all) == 0 {
		return
	}
	out.WriteString("\nNot examined:\n")
	for _, what := range all {
		fmt.Fprintf(out, "  %s\n", printable.Line(what))
	}
}

func age(now time.Time, since *metav1.Time, prefix string) string {
	if since.IsZero() {
		return ""
	}
	return prefix + duration.HumanDuration(max(0, now.Sub(since.Time)))
}

func writeFinding(out *strings.Builder, now time.Time, number int, label string, f diagnosis.Finding) {
	fmt.Fprintf(out, "\n%d. %s %s%s\n   %s\n", number, label, f.Cause, age(now, f.Since, ", for "), printable.Line(f.Message))
	writeController(out, f.Controller)
	if len(f.Remedies) == 0 {
		return
	}
	out.WriteString("   Remedies, the safest first:\n")
	for _, remedy := range f.Remedies {
		fmt.Fprintf(out, "   - %s\n", remedy.Description)
		if remedy.Command != "" {
			fmt.Fprintf(out, "         %s\n", remedy.Command)
		}
		if remedy.Risk != "" {
			fmt.Fprintf(out, "     Risk: %s\n", remedy.Risk)
		}
	}
}

func named(name string) string {
	if name == "" {
		return ", and not identified"
	}
	return fmt.Sprintf(" (%q)", printable.Line(name))
}

// writeController prints what is known of a program, if one has to act.
func writeController(out *strings.Builder, c *diagnosis.Controller) {
	if c == nil {
		return
	}
	fmt.Fprintf(out, "   Its controller: %s%s\n", strings.ToLower(string(c.State)), named(c.Name))
	for _, e := range c.Evidence {
		shows := ""
		if e.Shows != "" {
			shows = strings.ToLower(string(e.Shows)) + ": "
		}
		fmt.Fprintf(out, "   - %s%s: %s\n", shows, printable.Line(e.Source), printable.Line(e.Message))
	}
}

func writeRemaining(out *strings.Builder, now time.Time, resources []diagnosis.Resource) error {
	table := printers.GetNewTabWriter(out)
	_, _ = fmt.Fprintln(table, "  RESOURCE\tNAME\tAGE\tDELETED\tFINALIZERS\tOWNER")
	for _, resource := range resources {
		for _, object := range resource.Objects[:min(len(resource.Objects), objectsShown)] {
			_, _ = fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\t%s\n", printable.Line(resource.Resource), printable.Line(object.Name), age(now, &object.CreationTimestamp, ""),
				cmp.Or(age(now, object.DeletionTimestamp, ""), "<none>"), cmp.Or(printable.Line(strings.Join(object.Finalizers, ",")), "<none>"), cmp.Or(printable.Line(strings.Join(object.Owners, ",")), "<none>"))
		}
		if more := resource.Count - objectsShown; more > 0 {
			_, _ = fmt.Fprintf(table, "  %s\tand %d more\n", printable.Line(resource.Resource), more)
		}
	}
	return table.Flush()
}
