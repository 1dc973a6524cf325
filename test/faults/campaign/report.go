/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package campaign

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nsinit/nsinit/test/faults/check"
	"github.com/nsinit/nsinit/test/faults/fault"
)

// Report writes what a campaign has reached, as Markdown. Every number is from the state.
func (s *State) Report(w io.Writer) error {
	var total Result
	var table strings.Builder
	for _, f := range fault.All() {
		r, ok := s.Results[f.Name]
		if !ok {
			fmt.Fprintf(&table, "| %s | 0 | | | | |\n", f.Title())
			continue
		}
		fmt.Fprintf(&table, "| %s | %d | %d | %d | %d | %s |\n", f.Title(), r.Injections, r.Namespaces, r.Operations, len(r.Violations), seconds(r.Recovery))
		total.Injections += r.Injections
		total.Namespaces += r.Namespaces
		total.Operations += r.Operations
		total.Violations = append(total.Violations, r.Violations...)
		total.Recovery = max(total.Recovery, r.Recovery)
		total.Rounds += r.Rounds
		total.Duration += r.Duration
	}
	write := func(format string, args ...any) (err error) {
		_, err = fmt.Fprintf(w, format, args...)
		return err
	}
	if err := write(`# Reliability

This page is generated from the results of the fault campaign. [test/faults](../test/faults/README.md) describes the campaign;
`+"`make faults`"+` runs it and writes this page.

The campaign tested %s from %s on, and no later commit: `+"`git log --oneline COMMIT..`"+` lists what has changed since. `+"`make test`"+`
runs a slice of the campaign on the present code.

The campaign ran %d rounds in %s. Each round injects one fault several times while tenants, initializers and administrators work, heals it,
waits until every namespace converges, and checks:

| check | what must hold |
| --- | --- |
`, "commit "+strings.Join(s.Commits, ", then commit "), s.Began.UTC().Format("2006-01-02"), total.Rounds, total.Duration.Round(time.Minute)); err != nil {
		return err
	}
	for _, checker := range check.Checkers() {
		if err := write("| %s | %s |\n", checker.Name, checker.Summary); err != nil {
			return err
		}
	}
	if err := write(`
*Operations* are HTTP requests of clients. *Recovery* is the longest time from the end of the last fault of a round until every
namespace was open and Ready, or removed. A fault with 0 injections was not tested.

| fault | injections | namespaces | operations | violations | worst recovery |
| --- | ---: | ---: | ---: | ---: | ---: |
%s| **all** | %d | %d | %d | %d | %s |
`, table.String(), total.Injections, total.Namespaces, total.Operations, len(total.Violations), seconds(total.Recovery)); err != nil {
		return err
	}
	return write(`
\* A kube-apiserver that lags behind accepts writes to a namespace whose name was used before, as [security.md](security.md) explains.
Without the component ` + "`strict-name-reuse`" + `, tenants do not use names again while these faults last.
`)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
