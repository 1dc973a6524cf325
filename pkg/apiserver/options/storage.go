/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package options

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/nsinit/nsinit/pkg/embeddedetcd"
)

// newStorageCommand returns the command that takes care of the etcd member inside nsinit-apiserver.
func newStorageCommand() *cobra.Command {
	dir := defaultEtcdDir
	command := &cobra.Command{
		Use:   "storage",
		Short: "Take care of the etcd member inside nsinit-apiserver",
		Args:  cobra.NoArgs,
	}
	command.PersistentFlags().StringVar(&dir, flagEtcdDir, dir, "Directory in which nsinit-apiserver keeps the data of its etcd member.")
	command.AddCommand(newServeCommand(&dir), &cobra.Command{
		Use:   "save FILE",
		Short: "Save a snapshot of what the running nsinit-apiserver stores, to a file or with - to the standard output",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			size, err := save(command, dir, args[0])
			if err == nil {
				_, err = fmt.Fprintf(command.ErrOrStderr(), "saved %d bytes\n", size)
			}
			return err
		},
	}, &cobra.Command{
		Use:   "restore FILE",
		Short: "Make the data of an nsinit-apiserver that does not run, and has none, from a snapshot in a file or with - on the standard input",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			from := command.InOrStdin()
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer func() { _ = file.Close() }()
				from = file
			}
			if err := embeddedetcd.Restore(dir, from); err != nil {
				return err
			}
			_, err := fmt.Fprintf(command.ErrOrStderr(), "restored into %s\n", dir)
			return err
		},
	}, &cobra.Command{
		Use:   "recover",
		Short: "Compact and defragment the embedded etcd, and clear its NOSPACE alarm",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			before, after, err := embeddedetcd.Recover(command.Context(), dir)
			if err == nil {
				_, err = fmt.Fprintf(command.ErrOrStderr(), "%d bytes became %d\n", before, after)
			}
			return err
		},
	})
	return command
}

// newServeCommand returns the command that is the process of the etcd member. nsinit-apiserver runs it.
func newServeCommand(dir *string) *cobra.Command {
	var quota int64
	command := &cobra.Command{
		Use:    "serve",
		Short:  "Run the etcd member of nsinit-apiserver until the standard input ends",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return embeddedetcd.Serve(command.Context(), *dir, quota, command.InOrStdin(), command.OutOrStdout())
		},
	}
	command.Flags().Int64Var(&quota, flagEtcdQuota, quota, etcdQuotaUsage)
	return command
}

// serveStorage returns the process of the etcd member: this program, with the command above.
func (o *Options) serveStorage() *exec.Cmd {
	program, err := os.Executable()
	if err != nil {
		program = os.Args[0]
	}
	return exec.Command(program, "storage", "serve", "--"+flagEtcdDir+"="+o.EmbeddedEtcdDir, //nolint:gosec,noctx // this program; it ends with its input
		"--"+flagEtcdQuota+"="+strconv.FormatInt(o.EmbeddedEtcdQuota, 10))
}

// save saves a snapshot. A file that is not complete is not left behind.
func save(command *cobra.Command, dir, name string) (size int64, err error) {
	if name == "-" {
		out := command.OutOrStdout()
		if file, is := out.(*os.File); is && term.IsTerminal(int(file.Fd())) {
			return 0, errors.New("a snapshot is nothing for a terminal: send the standard output to a file")
		}
		return embeddedetcd.Save(command.Context(), dir, out)
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			err = errors.Join(err, os.Remove(name))
		}
	}()
	if size, err = embeddedetcd.Save(command.Context(), dir, file); err != nil {
		return size, err
	}
	return size, file.Sync()
}
