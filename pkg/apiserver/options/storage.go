/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package options

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/nsinit/nsinit/pkg/embeddedetcd"
	"github.com/nsinit/nsinit/pkg/program"
)

// newEtcdCommand returns the command that runs the embedded etcd.
func newEtcdCommand() *cobra.Command {
	const flagQuota = "embedded-etcd-quota-bytes"
	dir, quota := defaultEtcdDir, int64(0)
	command := &cobra.Command{
		Use:   "etcd",
		Short: "Run the embedded etcd of nsinit-apiserver",
		Long: "nsinit-apiserver etcd runs an etcd member that listens on a unix socket in its data directory only. It exits when etcd cannot write. " +
			"While the volume is full, it answers clients with the reason, and it starts etcd once there is space.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if quota < 0 {
				return fmt.Errorf("--%s=%d: give a size in bytes, or 0 to derive it from the volume", flagQuota, quota)
			}
			program.LimitMemory(command.Context())
			return embeddedetcd.Run(command.Context(), dir, quota)
		},
	}
	command.Flags().StringVar(&dir, flagEtcdDir, dir, "Data directory of the embedded etcd.")
	command.Flags().Int64Var(&quota, flagQuota, quota,
		"Maximum size of the database in bytes. The embedded etcd refuses writes above this size. With 0, the maximum is two fifths of the volume that contains the data directory, but not more than 8 GiB.")
	return command
}

// newStorageCommand returns the command that maintains the embedded etcd.
func newStorageCommand() *cobra.Command {
	dir := defaultEtcdDir
	command := &cobra.Command{
		Use:   "storage",
		Short: "Maintain the embedded etcd of nsinit-apiserver",
		Args:  cobra.NoArgs,
	}
	command.PersistentFlags().StringVar(&dir, flagEtcdDir, dir, "Data directory of the embedded etcd.")
	command.AddCommand(&cobra.Command{
		Use:   "save FILE",
		Short: "Save a snapshot of the running embedded etcd to FILE (- is standard output)",
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
		Short: "Restore a snapshot from FILE (- is standard input) into an empty data directory, while the embedded etcd is stopped",
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
				_, err = fmt.Fprintf(command.ErrOrStderr(), "the database shrank from %d to %d bytes\n", before, after)
			}
			return err
		},
	})
	return command
}

// save saves a snapshot. On an error, it removes the file.
func save(command *cobra.Command, dir, name string) (size int64, err error) {
	if name == "-" {
		out := command.OutOrStdout()
		if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
			return 0, errors.New("cannot write a snapshot to a terminal: redirect standard output to a file")
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
