/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command faults injects faults into a control plane with nsinit, and checks that no invariant is
// violated. README.md beside it explains the parts.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/hack/dev/controlplane"
	"github.com/nsinit/nsinit/test/faults/campaign"
	"github.com/nsinit/nsinit/test/faults/check"
	"github.com/nsinit/nsinit/test/faults/cluster"
	"github.com/nsinit/nsinit/test/faults/fault"
	"github.com/nsinit/nsinit/test/faults/history"
	"github.com/nsinit/nsinit/test/faults/seeded"
	"github.com/nsinit/nsinit/test/faults/topology"
	"github.com/nsinit/nsinit/test/faults/traffic"
)

const usage = `usage: faults COMMAND [FLAGS]

  run      run the campaign, or go on with one that was interrupted
  slice    inject a few faults, for make test
  check    judge stored histories again
  report   write docs/reliability.md from what run has reached
  list     list the faults
  seeded   make bugs, and see that each is found
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return errors.New("name a command")
	}
	switch args[0] {
	case "run", "slice":
		return runCampaign(ctx, args[0] == "slice", args[1:])
	case "check":
		return runCheck(args[1:])
	case "list":
		for _, f := range fault.All() {
			fmt.Println(f.Name)
		}
		return nil
	case "seeded":
		return runSeeded(ctx, args[1:])
	case "report":
		return runReport(args[1:])
	default:
		fmt.Fprint(os.Stderr, usage)
		return fmt.Errorf("unknown command %q", args[0])
	}
}

func runCampaign(ctx context.Context, slice bool, args []string) error {
	options := campaign.Options{Injections: 100, PerRound: 50}
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.StringVar(&options.Dir, "dir", filepath.Join("_output", "faults"), "where state and histories are kept")
	flags.IntVar(&options.Injections, "injections", options.Injections, "how often to inject each fault")
	flags.IntVar(&options.PerRound, "per-round", options.PerRound, "how often to inject a fault in one round")
	flags.IntVar(&options.Slots, "slots", 10, "how many namespaces the tenants use at a time")
	flags.Float64Var(&options.Rate, "rate", 30, "how many writes the tenants make in a second")
	flags.Uint64Var(&options.Seed, "seed", 0, "a number to be added to the seeds of the rounds, which are 1, 2, 3, ...")
	flags.BoolVar(&options.Recreate, "recreate", true, "let tenants use the names of namespaces again")
	flags.BoolVar(&options.StrictNameReuse, "strict-name-reuse", false, "let tenants use names again in every round: the component strict-name-reuse is installed")
	flags.BoolVar(&options.StopAtViolation, "stop-at-violation", false, "end with the first violation")
	only := flags.String("only", "", "a regular expression for the names of faults")
	flags.IntVar(&options.Planes, "planes", 1, "how many control planes to use at a time; each takes about one core")
	binDir := flags.String("bin-dir", "", "programs to use instead of those in _output/bin, such as a build with failpoints")
	earlierDir := flags.String("earlier-dir", "", "programs of an earlier version of nsinit, for the faults that replace replicas by it")
	failpoints := flags.Bool("failpoints", false, "the programs in --bin-dir are built with failpoints")
	small := flags.Bool("small", false, "run one of each program")
	verbose := flags.Bool("v", false, "show what initializers log")
	if slice {
		options.Dir = filepath.Join(options.Dir, "slice")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if slice {
		options.Injections = len(sliceOf(fault.All(), nil))
		options.PerRound = options.Injections
	}
	if !*verbose {
		klog.SetLogger(logr.Discard())
	}
	if *only != "" {
		expression, err := regexp.Compile(*only)
		if err != nil {
			return err
		}
		options.Only = expression
	}
	options.Commit = sourceOf(*binDir)
	if *earlierDir != "" {
		options.Earlier = sourceOf(*earlierDir)
	}
	plane, err := planeOf(options.Dir)
	if err != nil {
		return err
	}
	planeOptions := cluster.Options{Topology: cluster.Full(), Dir: plane, BinDir: *binDir, EarlierDir: *earlierDir}
	if slice || *small {
		planeOptions.Topology = cluster.Small()
	}
	planeOptions.Volume = !slice && os.Geteuid() == 0
	options.Start = func(ctx context.Context, number int) (campaign.Plane, error) {
		one := planeOptions
		if number > 0 {
			one.Dir += fmt.Sprintf("-%d", number)
		}
		return topology.Start(ctx, one, *failpoints)
	}
	if slice {
		return campaign.Slice(ctx, options, sliceOf(fault.All(), options.Only))
	}
	return campaign.Run(ctx, options)
}

// planeOf returns the state directory of the control plane of a campaign: it is always the same, so that a run removes what the one before
// it left, and its path is short, because unix sockets are in it. Each further control plane adds its number.
func planeOf(campaign string) (string, error) {
	absolute, err := filepath.Abs(campaign)
	if err != nil {
		return "", err
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("nsinit-faults-%08x", crc32.ChecksumIEEE([]byte(absolute)))), nil
}

// sourceOf returns the commit of the programs in a directory, by default those of "make build".
func sourceOf(binDir string) string {
	if binDir == "" {
		binDir = filepath.Join("_output", "bin")
	}
	commit, err := os.ReadFile(filepath.Join(binDir, controlplane.SourceFile)) //nolint:gosec // the user names it
	if name := strings.TrimSpace(string(commit)); err == nil && name != "" {
		return name
	}
	return "unknown"
}

// sliceOf returns the faults of the slice: some of each kind, that recover quickly.
func sliceOf(all []fault.Fault, only *regexp.Regexp) []fault.Fault {
	if only == nil {
		only = regexp.MustCompile(`^(kill -9|SIGSTOP) nsinit-(apiserver|controller-manager)$|^kill -9 ((nsinit-)?etcd|policy-population)$|^restart of kube-apiserver$` +
			`|^(aggregator|controller|initializer) to .* (cut|dropped)$|webhook after the gate$|^deleted exemptions|^namespace deleted at step|^flapping`)
	}
	return slices.DeleteFunc(all, func(f fault.Fault) bool { return !only.MatchString(f.Name) })
}

func runCheck(args []string) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	options := check.Options{NamePrefix: traffic.NamePrefix}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("name files with histories, or a directory of them")
	}
	var files []string
	for _, arg := range flags.Args() {
		if found, err := filepath.Glob(filepath.Join(arg, "*.jsonl")); err == nil && len(found) > 0 {
			files = append(files, found...)
		} else {
			files = append(files, arg)
		}
	}
	violations := 0
	for _, file := range files {
		h, err := history.Load(file)
		if err != nil {
			return err
		}
		found := check.All(h, campaign.Recheck(options))
		fmt.Printf("%s: %d operations, %d events, %d violations\n", file, len(h.Operations), len(h.Events), len(found))
		for _, violation := range found {
			fmt.Println(" ", violation)
		}
		violations += len(found)
	}
	if violations > 0 {
		return fmt.Errorf("%d violations", violations)
	}
	return nil
}

func runReport(args []string) error {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	dir := flags.String("dir", filepath.Join("test", "faults", "results"), "where the state is kept")
	output := flags.String("output", filepath.Join("docs", "reliability.md"), "the file to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	state, err := campaign.Load(*dir)
	if err != nil {
		return err
	}
	if state.Rounds == 0 {
		return fmt.Errorf("nothing was reached in %s: run the campaign first", *dir)
	}
	var text bytes.Buffer
	if err := state.Report(&text); err != nil {
		return err
	}
	return os.WriteFile(*output, text.Bytes(), 0o644) //nolint:gosec // documentation
}

func runSeeded(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("seeded", flag.ContinueOnError)
	options := seeded.Options{Root: ".", Output: os.Stdout}
	flags.BoolVar(&options.Campaign, "campaign", false, "also run the scenario of each bug on a control plane, which takes minutes each")
	flags.IntVar(&options.Injections, "injections", 40, "how often to inject the fault of a scenario at most")
	flags.StringVar(&options.Histories, "histories", "", "where to store what the campaign recorded of each bug")
	only := flags.String("only", "", "a regular expression for the names of bugs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	expression, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	options.Only = expression
	if options.Root, err = filepath.Abs(options.Root); err != nil {
		return err
	}
	return seeded.Run(ctx, options)
}
