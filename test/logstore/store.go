/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"crypto/subtle"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// store keeps indices in a database.
type store struct {
	db       *sql.DB
	password string
	takes    time.Duration
}

// prepare makes the tables.
func (s *store) prepare(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, `
		CREATE TABLE IF NOT EXISTS indices (name text PRIMARY KEY, owner text, body jsonb);
		CREATE TABLE IF NOT EXISTS streams (id serial PRIMARY KEY, key text, owner text, ready timestamptz);
		CREATE UNIQUE INDEX IF NOT EXISTS once ON streams (key)`)
	return err
}

// handler answers requests.
func (s *store) handler() http.Handler {
	paths := http.NewServeMux()
	paths.HandleFunc("PUT /{index}", s.create)
	paths.HandleFunc("GET /{index}", s.show)
	paths.HandleFunc("DELETE /{index}", s.remove)
	paths.HandleFunc("GET /_cat/indices", s.list)
	paths.HandleFunc("POST /_streams", s.begin)
	paths.HandleFunc("GET /_streams/{id}", s.progress)
	paths.HandleFunc("GET /_streams", s.streams)
	paths.HandleFunc("DELETE /_streams", s.end)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, given := r.BasicAuth()
		if !given || user != "elastic" || subtle.ConstantTimeCompare([]byte(password), []byte(s.password)) != 1 {
			answer(w, http.StatusUnauthorized, failure("security_exception", "missing or wrong credentials"))
			return
		}
		paths.ServeHTTP(w, r)
	})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func failure(kind, reason string) map[string]any {
	return map[string]any{"error": map[string]any{"type": kind, "reason": reason}}
}

func broken(w http.ResponseWriter, err error) {
	log.Print(err)
	answer(w, http.StatusServiceUnavailable, failure("exception", err.Error()))
}

// create makes an index, and a schema for it. One that exists is an error, as with Elasticsearch.
func (s *store) create(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("index")
	body, err := io.ReadAll(r.Body)
	if err != nil || !json.Valid(body) {
		answer(w, http.StatusBadRequest, failure("parse_exception", "the body is not JSON"))
		return
	}
	var content struct {
		Mappings struct {
			Meta struct{ Owner string } `json:"_meta"`
		}
	}
	_ = json.Unmarshal(body, &content)
	tx, err := s.db.BeginTx(r.Context(), nil)
	if err != nil {
		broken(w, err)
		return
	}
	defer func() { _ = tx.Rollback() }()
	result, err := tx.ExecContext(r.Context(), `INSERT INTO indices (name, owner, body) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, name, content.Mappings.Meta.Owner, body)
	if err != nil {
		broken(w, err)
		return
	}
	if made, err := result.RowsAffected(); err != nil || made == 0 {
		answer(w, http.StatusBadRequest, failure("resource_already_exists_exception", "index ["+name+"] already exists"))
		return
	}
	if _, err := tx.ExecContext(r.Context(), "CREATE SCHEMA "+pgx.Identifier{name}.Sanitize()); err != nil {
		broken(w, err)
		return
	}
	if err := tx.Commit(); err != nil {
		broken(w, err)
		return
	}
	answer(w, http.StatusOK, map[string]any{"acknowledged": true, "shards_acknowledged": true, "index": name})
}

func (s *store) show(w http.ResponseWriter, r *http.Request) {
	var body json.RawMessage
	err := s.db.QueryRowContext(r.Context(), `SELECT body FROM indices WHERE name = $1`, r.PathValue("index")).Scan(&body)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		answer(w, http.StatusNotFound, failure("index_not_found_exception", "no such index"))
	case err != nil:
		broken(w, err)
	default:
		answer(w, http.StatusOK, map[string]any{r.PathValue("index"): body})
	}
}

func (s *store) remove(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("index")
	tx, err := s.db.BeginTx(r.Context(), nil)
	if err != nil {
		broken(w, err)
		return
	}
	defer func() { _ = tx.Rollback() }()
	result, err := tx.ExecContext(r.Context(), `DELETE FROM indices WHERE name = $1`, name)
	if err != nil {
		broken(w, err)
		return
	}
	if removed, err := result.RowsAffected(); err != nil || removed == 0 {
		answer(w, http.StatusNotFound, failure("index_not_found_exception", "no such index"))
		return
	}
	if _, err := tx.ExecContext(r.Context(), "DROP SCHEMA "+pgx.Identifier{name}.Sanitize()); err != nil {
		broken(w, err)
		return
	}
	if err := tx.Commit(); err != nil {
		broken(w, err)
		return
	}
	answer(w, http.StatusOK, map[string]any{"acknowledged": true})
}

// list shows the indices, each with the schema that the database has for it.
func (s *store) list(w http.ResponseWriter, r *http.Request) {
	s.rows(w, r, `SELECT name, owner FROM indices JOIN information_schema.schemata ON schema_name = name ORDER BY name`, "index", "owner")
}

// begin accepts an operation. The same key begins the same one.
func (s *store) begin(w http.ResponseWriter, r *http.Request) {
	var content struct{ Owner string }
	if err := json.NewDecoder(r.Body).Decode(&content); err != nil {
		answer(w, http.StatusBadRequest, failure("parse_exception", err.Error()))
		return
	}
	var key *string
	if given := r.Header.Get("Idempotency-Key"); given != "" {
		key = &given
	}
	var id int64
	err := s.db.QueryRowContext(r.Context(), `INSERT INTO streams (key, owner, ready) VALUES ($1, $2, $3)
		ON CONFLICT (key) DO UPDATE SET owner = streams.owner RETURNING id`, key, content.Owner, time.Now().Add(s.takes)).Scan(&id)
	if err != nil {
		broken(w, err)
		return
	}
	w.Header().Set("Location", "/_streams/"+strconv.FormatInt(id, 10))
	answer(w, http.StatusAccepted, map[string]any{"id": id})
}

func (s *store) progress(w http.ResponseWriter, r *http.Request) {
	var ready time.Time
	err := s.db.QueryRowContext(r.Context(), `SELECT ready FROM streams WHERE id::text = $1`, r.PathValue("id")).Scan(&ready)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		answer(w, http.StatusNotFound, failure("not_found", "no such stream"))
	case err != nil:
		broken(w, err)
	case time.Now().Before(ready):
		answer(w, http.StatusOK, map[string]any{"completed": false})
	default:
		answer(w, http.StatusOK, map[string]any{"completed": true, "stream": map[string]any{"name": "stream-" + r.PathValue("id"), "token": "token-of-" + r.PathValue("id")}})
	}
}

func (s *store) streams(w http.ResponseWriter, r *http.Request) {
	s.rows(w, r, `SELECT id::text, owner FROM streams ORDER BY id`, "id", "owner")
}

// end removes the streams of an owner.
func (s *store) end(w http.ResponseWriter, r *http.Request) {
	if _, err := s.db.ExecContext(r.Context(), `DELETE FROM streams WHERE owner = $1`, r.URL.Query().Get("owner")); err != nil {
		broken(w, err)
		return
	}
	answer(w, http.StatusOK, map[string]any{"acknowledged": true})
}

// rows answers with the rows of two columns.
func (s *store) rows(w http.ResponseWriter, r *http.Request, query, first, second string) {
	rows, err := s.db.QueryContext(r.Context(), query)
	if err != nil {
		broken(w, err)
		return
	}
	defer func() { _ = rows.Close() }()
	all := []map[string]string{}
	for rows.Next() {
		var a, b string
		if err := rows.Scan(&a, &b); err != nil {
			broken(w, err)
			return
		}
		all = append(all, map[string]string{first: a, second: b})
	}
	if err := rows.Err(); err != nil {
		broken(w, err)
		return
	}
	answer(w, http.StatusOK, all)
}
