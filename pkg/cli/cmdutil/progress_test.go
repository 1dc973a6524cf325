/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cmdutil

import (
	"bytes"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// TestLine: short commands show nothing, and long ones do not flood.
func TestLine(t *testing.T) {
	for name, test := range map[string]struct {
		terminal bool
		want     string
	}{
		"a terminal": {true, "\r\x1b[K2 of 4\r\x1b[K3 of 4\r\x1b[K4 of 4\r\x1b[K"},
		"a file":     {false, "2 of 4\n4 of 4\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
			line := NewLine(&out, clock)
			line.terminal = test.terminal
			for i, second := range []int64{0, 2, 4, 9} {
				clock.SetTime(time.Unix(second, 0))
				line.Show("%d of %d", i+1, 4)
			}
			line.End()
			line.End()
			if out.String() != test.want {
				t.Errorf("got %q, want %q", out.String(), test.want)
			}
		})
	}
}
