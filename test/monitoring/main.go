/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command monitoring evaluates the alerts of a PrometheusRule, and the queries of a dashboard, on metrics
// that were scraped, at the time of the last of them. What it says is JSON on its standard output.
//
//	monitoring --rules FILE --dashboard FILE --scrapes DIRECTORY [--picture FILE [--document FILE]]
//
// The folder holds the answers for /metrics, named MILLISECONDS-JOB.txt. The picture (SVG) is the dashboard, from a
// minute after the first of them, because rates need a minute, to the last. The table that follows the picture in the
// document has its numbers.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"sigs.k8s.io/yaml"
)

// Found is what is said.
type Found struct {
	// Active are the alerts whose expression holds, whatever time they wait for, with the labels of
	// what it holds for.
	Active map[string][]string `json:"active"`
	// Firing are the alerts that have been active for the time that they wait for. Only with a picture.
	Firing []string `json:"firing,omitempty"`
	// Unknown are the metrics in rules and dashboard that no program exports, by where they are used.
	Unknown map[string][]string `json:"unknown"`
	// Empty are the queries of the dashboard that show nothing.
	Empty []string `json:"empty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	rules := flag.String("rules", "", "file with a PrometheusRule")
	dashboard := flag.String("dashboard", "", "file with a dashboard of Grafana")
	scrapes := flag.String("scrapes", "", "folder with what was scraped")
	picture := flag.String("picture", "", "file to draw the dashboard to")
	document := flag.String("document", "", "document with the picture, and below it the table of its numbers")
	flag.Parse()
	found, err := evaluate(*rules, *dashboard, *scrapes, *picture, *document)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// evaluate evaluates rules and a dashboard on what was scraped. A picture is drawn if it has a name.
func evaluate(rules, dashboard, scrapes, picture, document string) (*Found, error) {
	dir, err := os.MkdirTemp("", "monitoring")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := tsdb.Open(dir, slog.New(slog.NewTextHandler(io.Discard, nil)), nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	e := &evaluation{db: db, known: map[string]bool{}, found: Found{Active: map[string][]string{}, Unknown: map[string][]string{}, Empty: []string{}}}
	e.engine = promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute, LookbackDelta: 10 * time.Second})
	alerts, err := readRules(rules)
	if err != nil {
		return nil, err
	}
	panels, err := readPanels(dashboard)
	if err != nil {
		return nil, err
	}
	if e.used, err = used(alerts, panels); err != nil {
		return nil, err
	}
	if err := e.load(scrapes); err != nil {
		return nil, err
	}
	if err := errors.Join(e.rules(alerts), e.dashboard(panels)); err != nil {
		return nil, err
	}
	if picture == "" {
		return &e.found, nil
	}
	shown, err := e.shown(alerts, panels, document, picture, scrapes)
	if err != nil {
		return nil, err
	}
	e.found.Firing = e.firing(shown.alerts)
	return &e.found, e.draw(panels, shown, picture)
}

// shown returns what a picture shows beside the panels. Without a document, it has no numbers.
func (e *evaluation) shown(rules []rulefmt.Rule, panels []panel, document, picture, scrapes string) (shown drawing, err error) {
	if shown.alerts, err = e.alerts(rules); err != nil {
		return shown, err
	}
	if shown.events, err = readEvents(scrapes); err != nil || document == "" {
		return shown, err
	}
	if shown.marks, err = readMarks(document, picture); err != nil {
		return shown, err
	}
	return shown, checkMarks(shown.marks, panels, rules)
}

type evaluation struct {
	db     *tsdb.DB
	engine *promql.Engine
	first  time.Time
	last   time.Time
	// used are the metrics in queries, and known are those that a program exports.
	used, known map[string]bool
	found       Found
}

// used returns the metrics that rules and panels ask for.
func used(rules []rulefmt.Rule, panels []panel) (map[string]bool, error) {
	var queries []string
	for _, rule := range rules {
		queries = append(queries, rule.Expr)
	}
	for _, panel := range panels {
		for _, target := range panel.Targets {
			queries = append(queries, variables.Replace(target.Expr))
		}
	}
	all := map[string]bool{}
	for _, query := range queries {
		names, err := metricsIn(query)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			all[name] = true
		}
	}
	return all, nil
}

// metricsIn returns the names of the metrics in a query.
func metricsIn(query string) (names []string, err error) {
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	for _, matchers := range parser.ExtractSelectors(expression) {
		for _, matcher := range matchers {
			if matcher.Name == model.MetricNameLabel {
				names = append(names, matcher.Value)
			}
		}
	}
	return names, nil
}

// load reads what was scraped.
func (e *evaluation) load(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		return errors.Join(err, fmt.Errorf("%s holds nothing that was scraped", dir))
	}
	slices.Sort(files)
	for _, file := range files {
		at, job, found := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".txt"), "-")
		milliseconds, err := strconv.ParseInt(at, 10, 64)
		if err != nil || !found {
			return fmt.Errorf("%s is not named MILLISECONDS-JOB.txt", file)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := e.append(milliseconds, job, text); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		e.last = time.UnixMilli(milliseconds)
		if e.first.IsZero() {
			e.first = e.last
		}
	}
	return nil
}

func (e *evaluation) append(milliseconds int64, job string, text []byte) error {
	appender := e.db.Appender(context.Background())
	lines, err := textparse.New(text, "text/plain", labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return err
	}
	for {
		entry, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return appender.Commit()
		}
		if err != nil {
			return errors.Join(err, appender.Rollback())
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var series labels.Labels
		lines.Labels(&series)
		name := series.Get(model.MetricNameLabel)
		e.known[name] = true
		if !e.used[name] {
			continue // kube-apiserver has tens of thousands of others
		}
		builder := labels.NewBuilder(series)
		for _, label := range []string{"job", "instance", "pod"} { // there is one of each
			builder.Set(label, job)
		}
		_, _, value := lines.Series()
		if _, err := appender.Append(storage.SeriesRef(0), builder.Labels(), milliseconds, value); err != nil {
			return errors.Join(err, appender.Rollback())
		}
	}
}

// rules evaluates the alerts.
func (e *evaluation) rules(rules []rulefmt.Rule) error {
	for _, rule := range rules {
		result, err := e.query(rule.Alert, rule.Expr)
		if err != nil {
			return err
		}
		for _, sample := range result {
			e.found.Active[rule.Alert] = append(e.found.Active[rule.Alert], sample.Metric.String())
		}
	}
	return nil
}

// readRules reads a PrometheusRule. Prometheus' own check of rules finds what is wrong with them, their
// templates included.
func readRules(file string) (rules []rulefmt.Rule, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var object struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &object); err != nil {
		return nil, err
	}
	parsed, errs := rulefmt.Parse(object.Spec, false, model.UTF8Validation, parser.NewParser(parser.Options{}))
	if len(errs) > 0 {
		return nil, fmt.Errorf("%s: %w", file, errors.Join(errs...))
	}
	for _, group := range parsed.Groups {
		rules = append(rules, group.Rules...)
	}
	return rules, nil
}

// window is the range of the rates.
const window = time.Minute

// variables are what Grafana puts into queries.
var variables = strings.NewReplacer("$__rate_interval", model.Duration(window).String()) //nolint:gochecknoglobals // a constant

// panel is a panel of a dashboard of Grafana.
type panel struct {
	ID          int
	Type        string
	Title       string
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct{ Expr, LegendFormat string }
	FieldConfig struct {
		Defaults struct {
			Unit       string
			Thresholds struct {
				Steps []struct {
					Color string
					Value *float64
				}
			}
		}
	}
}

func readPanels(file string) ([]panel, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal(data, &dashboard); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return dashboard.Panels, nil
}

// dashboard evaluates the queries of every panel.
func (e *evaluation) dashboard(panels []panel) error {
	ids := map[int]bool{}
	for _, panel := range panels {
		if ids[panel.ID] || panel.Title == "" || len(panel.Targets) == 0 || panel.GridPos.X+panel.GridPos.W > columns {
			return fmt.Errorf("panel %d %q has the number of another, no title, no query, or is too wide", panel.ID, panel.Title)
		}
		ids[panel.ID] = true
		for _, target := range panel.Targets {
			result, err := e.query(panel.Title, variables.Replace(target.Expr))
			if err != nil {
				return err
			}
			if len(result) == 0 {
				e.found.Empty = append(e.found.Empty, panel.Title+": "+target.Expr)
			}
		}
	}
	return nil
}

var histogram = regexp.MustCompile(`_(bucket|sum|count)$`)

// query evaluates a query at the time of the last scrape, and notes metrics that no program exports.
func (e *evaluation) query(where, text string) (promql.Vector, error) {
	names, err := metricsIn(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	unknown := map[string]bool{}
	for _, name := range names {
		if !e.known[name] && !e.known[histogram.ReplaceAllString(name, "_bucket")] {
			unknown[name] = true
		}
	}
	if len(unknown) > 0 {
		e.found.Unknown[where] = slices.Sorted(maps.Keys(unknown))
	}
	query, err := e.engine.NewInstantQuery(context.Background(), e.db, nil, text, e.last)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	defer query.Close()
	result := query.Exec(context.Background())
	if result.Err != nil {
		return nil, fmt.Errorf("%s: %w", where, result.Err)
	}
	vector, err := result.Vector()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	return vector, nil
}
