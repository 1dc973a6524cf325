/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command perf measures what nsinit costs, next to a control plane without nsinit. README.md beside it explains the method.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

const usage = `usage: perf COMMAND [FLAGS]

  run          measure, or go on with measurements that were interrupted
  profile      write profiles of the programs while they do what a scenario measures
  report       write docs/performance.md from what run has measured
  pictures     draw the pictures of docs/performance.md from its tables
  content      keep the content of deleted namespaces in several ways, and print what that costs
  repairs      repair objects while a population change reaches thousands of namespaces, and print how long that takes
  memory       create the largest namespaces that are admitted, and print how much memory the programs use in cgroups
  access       list and watch the namespaces of many users, and print how long that takes and what it costs
  large        do what happens in a cluster with 10,000 namespaces, and print how long it takes and what it costs
  initializer  serve initializers, as run does in a separate process
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	klog.SetLogger(logr.Discard())
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	dir := flags.String("dir", filepath.Join("_output", "perf"), "the folder with the samples")
	planes := ""
	var action func() error
	switch command {
	case "run":
		planesFlag(flags, &planes)
		only := flags.String("only", "", "a regular expression for the names of scenarios")
		rounds := flags.Int("rounds", 0, "the number of rounds of each scenario; 0 means its default")
		action = func() error {
			expression, err := regexp.Compile(*only)
			if err != nil {
				return fmt.Errorf("--only: %w", err)
			}
			return measure(ctx, options{dir: *dir, planes: planes, only: expression, rounds: *rounds})
		}
	case "profile":
		planesFlag(flags, &planes)
		scenario := flags.String("scenario", "storm", "what to do meanwhile")
		action = func() error {
			return profile(ctx, planes, filepath.Join(*dir, "profiles"), *scenario)
		}
	case "report":
		action = reportCommand(flags, dir)
	case "pictures":
		action = picturesCommand(flags)
	case "content":
		o := holdOptions{counts: []int{1, 20, 100}}
		planesFlag(flags, &o.planes)
		flags.IntVar(&o.rounds, "rounds", 1, "the number of rounds")
		flags.DurationVar(&o.lasts, "lasts", time.Minute, "how long the content is held")
		flags.Func("only", "a regular expression for the ways to keep the content", o.setOnly)
		flags.Func("counts", "the numbers of namespaces, separated by commas (default 1,20,100)", o.setCounts)
		action = func() error {
			return measureHolds(ctx, o)
		}
	case "repairs":
		var o repairOptions
		planesFlag(flags, &o.planes)
		flags.StringVar(&o.before, "before", "", "another build of policy-population, to measure too")
		flags.IntVar(&o.namespaces, "namespaces", 2000, "the number of namespaces")
		flags.IntVar(&o.rounds, "rounds", 3, "the number of changes of the population")
		flags.IntVar(&o.quiet, "quiet", 100, "the number of repairs before each change")
		action = func() error {
			return measureRepairs(ctx, o)
		}
	case "memory":
		action = memoryCommand(ctx, flags)
	case "access":
		action = accessCommand(ctx, flags)
	case "large":
		action = largeCommand(ctx, flags)
	case "initializer":
		action = initializerCommand(ctx, flags)
	default:
		fmt.Fprint(os.Stderr, usage)
		return errors.New("name a command")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	return action()
}

func planesFlag(flags *flag.FlagSet, planes *string) {
	flags.StringVar(planes, "planes", filepath.Join(os.TempDir(), "nsinit-perf"), "the folder with the state of the control planes, whose path must be short")
}
