/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command dev runs a real Kubernetes control plane with nsinit on this machine, as
// processes on loopback, for development, tests and the demo. README.md in this folder describes its files.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/nsinit/nsinit/hack/dev/controlplane"
)

const usage = `usage: dev [--dir DIR] [--kubernetes VERSION] [--no-build] COMMAND

  build [kube-scheduler]      build every program, or the one that only the fault campaign
                              runs
  up [--only-kube|--bare]     start the control plane and nsinit in the background, or
                              only Kubernetes, or a control plane without
                              kube-controller-manager, on which nsinit empties namespaces
  down                        stop what up started
  run                         the same in the foreground, with an initializer, until Ctrl-C
  status                      show what runs, and the last restart of each program
  start|stop|kill PROGRAM     start, stop (SIGTERM) or kill -9 one program, which stays down
                              until it is started; a program that exits is restarted
  kubeconfig USER [GROUP...]  write a kubeconfig for a user, and print its path
`

func main() {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup: continue when the terminal closes
		signals = append(signals, syscall.SIGHUP)
	}
	if len(os.Args) > 1 && os.Args[1] == controlplane.SuperviseCommand { // started by Process.Start only
		exit(controlplane.Supervise(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	exit(run(ctx, os.Args[1:]))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("dev", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	dir := flags.String("dir", os.Getenv("NSINIT_DEV_DIR"), "state directory, _output/dev by default")
	kubernetes := flags.String("kubernetes", os.Getenv("NSINIT_DEV_KUBERNETES"), "version of Kubernetes, such as v1.35, the newest by default")
	noBuild := flags.Bool("no-build", false, "start the programs that dev build has built, without a check that they are up to date")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cluster, err := controlplane.NewCluster(*dir, *kubernetes)
	if err != nil {
		return err
	}
	cluster.NoBuild = *noBuild
	rest := flags.Args()
	if len(rest) == 0 {
		flags.Usage()
		return errors.New("no command given: give one of those above")
	}
	switch command := rest[0]; command {
	case "build":
		switch {
		case len(rest) == 1:
			return cluster.Build(ctx)
		case len(rest) == 2 && rest[1] == controlplane.Scheduler:
			return cluster.BuildScheduler(ctx)
		default:
			return fmt.Errorf("build accepts only %s, not %q", controlplane.Scheduler, rest[1:])
		}
	case "up":
		switch {
		case len(rest) == 1:
			return cluster.Up(ctx)
		case len(rest) == 2 && rest[1] == "--only-kube":
			return cluster.UpKubernetes(ctx)
		case len(rest) == 2 && rest[1] == "--bare":
			return cluster.UpBare(ctx)
		default:
			return fmt.Errorf("up accepts only --only-kube or --bare, not %q", rest[1:])
		}
	case "down":
		return cluster.Down(context.WithoutCancel(ctx))
	case "run":
		return cluster.Run(ctx)
	case "status":
		return cluster.Status()
	case "start", "stop", "kill":
		if len(rest) != 2 {
			return fmt.Errorf("%s takes the name of one program: %s", command, strings.Join(controlplane.ProgramNames(), ", "))
		}
		return cluster.Control(ctx, command, rest[1])
	case "kubeconfig":
		if len(rest) < 2 {
			return errors.New("kubeconfig takes the name of a user, and groups")
		}
		path, err := cluster.UserKubeconfig(rest[1], rest[2:]...)
		if err == nil {
			fmt.Println(path)
		}
		return err
	default:
		flags.Usage()
		return fmt.Errorf("unknown command %q", command)
	}
}
