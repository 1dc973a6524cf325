/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command logstore is a small HTTP front of a PostgreSQL database, for tests of http-provisioner.
// It speaks the part of Elasticsearch's API that makes, shows and deletes indices, each of which
// is a schema of the database, and has one operation more that takes its time. What it answered
// is in the database, so it can be killed at any moment.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	dir := flag.String("data-dir", "", "Directory of the PostgreSQL server, which is started. Its path has to be short.")
	address := flag.String("listen", "127.0.0.1:0", "Address to listen on. It is printed.")
	certificate := flag.String("tls-cert-file", "", "Serving certificate.")
	key := flag.String("tls-private-key-file", "", "Its key.")
	password := flag.String("password", "", "Password of the user elastic.")
	takes := flag.Duration("takes", 0, "How long an operation takes after it was accepted.")
	flag.Parse()

	db, err := startPostgres(ctx, *dir)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	s := &store{db: db, password: *password, takes: *takes}
	if err := s.prepare(ctx); err != nil {
		return fmt.Errorf("cannot prepare the database: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *address)
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ServeTLS(listener, *certificate, *key); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
