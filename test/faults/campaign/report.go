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
	earlier := ""
	if s.Earlier != "" {
		earlier = fmt.Sprintf("- An *earlier version* is that of commit %s. Its replicas act beside replicas of the tested version.\n", s.Earlier)
	}
	write := func(format string, args ...any) (err error) {
		_, err = fmt.Fprintf(w, format, args...)
		return err
	}
	if err := write(`# Reliability

`+"`make faults`"+` runs the [fault campaign](../test/faults/README.md), and generates this page from the results.

The campaign began on %[2]s. It tested the programs of commit %[1]s, and no later ones. To list the later changes, run
`+"`git log --oneline %[1]s.. -- cmd pkg sdk`"+`. `+"`make test`"+` runs a part of the campaign on the current code.

The campaign ran %[3]d rounds, which took %[4]s in all. Each round injects and removes one fault several times, while tenants,
initializers and administrators send requests. At the end of a round, these checks judge all recorded requests and changes:

| check | what must hold |
| --- | --- |
`, s.Commit, s.Began.UTC().Format("2006-01-02"), total.Rounds, total.Duration.Round(time.Minute)); err != nil {
		return err
	}
	for _, checker := range check.Checkers() {
		if err := write("| %s | %s |\n", checker.Name, checker.Summary); err != nil {
			return err
		}
	}
	if err := write(`
In the next table, *operations* are HTTP requests of clients. *Worst recovery* is the longest time from the end of the last fault of a round
until every namespace was open and Ready, or removed, every pod had a node, and every Job had started. A fault with 0 injections was not
tested.

- If connections deliver no data until a fault ends, no data is lost: after the fault, the connections deliver all data.
- If connections are closed until a fault ends, clients cannot open new connections during the fault.
- A *failpoint* is a place in the code between two requests of a program. The campaign makes the program crash or wait there.
- kube-apiserver calls mutating webhooks before the gate, and validating webhooks after the gate. The webhooks in this campaign have the
  failurePolicy `+"`Ignore`"+`.
%s
| fault | injections | namespaces | operations | violations | worst recovery |
| --- | ---: | ---: | ---: | ---: | ---: |
%s| **all** | %d | %d | %d | %d | %s |
`, earlier, table.String(), total.Injections, total.Namespaces, total.Operations, len(total.Violations), seconds(total.Recovery)); err != nil {
		return err
	}
	return write(`
\* During this fault, a kube-apiserver can accept late writes to a namespace whose name was used before. [security.md](security.md) explains
the cause. To avoid such writes, the tenants in the campaign do not reuse names during this fault, unless the component
` + "`strict-name-reuse`" + ` is installed.
`)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
