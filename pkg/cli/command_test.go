/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"

	"github.com/nsinit/nsinit/sdk/util/printable"
)

// TestMistakes: a mistake is reported on the error stream, with exit code 1, and nothing is printed.
func TestMistakes(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(kubeconfig, []byte("apiVersion: v1\nkind: Config\ncurrent-context: none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	unserved := httptest.NewServer(http.NotFoundHandler())
	defer unserved.Close()
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"no such command":   {[]string{"whi"}, `unknown command "whi"`},
		"no namespace":      {[]string{"why"}, "the argument NAMESPACE is missing; for example:\n  # Why does"},
		"no namespaces":     {[]string{"wait"}, "the argument NAMESPACE is missing; for example:"},
		"no initializer":    {[]string{"skip", "ns"}, "the argument INITIALIZER is missing; for example:"},
		"two namespaces":    {[]string{"why", "a", "b"}, `unexpected argument "b"; for example:`},
		"no such format":    {[]string{"why", "ns", "--output=xml"}, `unable to match a printer suitable for the output format "xml", allowed formats are: go-template`},
		"negative patience": {[]string{"why", "ns", "--patience=-1s"}, "invalid argument \"-1s\" for \"--patience\" flag: must not be negative; see 'kubectl nsinit why --help'"},
		"no cluster":        {[]string{"why", "ns", "--kubeconfig=" + kubeconfig}, `context was not found`},
		"no server":         {[]string{"status", "--server=http://127.0.0.1:1"}, "error: the connection to the server 127.0.0.1:1 was refused - did you specify the right host or port?"},
		"no API":            {[]string{"status", "--server=" + unserved.URL}, "namespacelifecycles.nsinit.dev): the API of nsinit is not registered: nsinit is not installed, or does not work; run kubectl nsinit check"},
		"no name of a role": {[]string{"rbac", "--user=jane"}, "the argument INITIALIZER is missing; for example:"},
		"a role too many":   {[]string{"rbac", "a.example.com", "--view", "--user=jane"}, `unexpected argument "a.example.com": --view is for no initializer`},
		"no such flag":      {[]string{"why", "ns", "--no"}, "unknown flag: --no; see 'kubectl nsinit why --help'"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := Run(t.Context(), genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errs}, test.args...)
			if code != 1 || out.Len() > 0 || !strings.HasPrefix(errs.String(), "error: ") || !strings.Contains(errs.String(), test.says) {
				t.Errorf("exit code %d, prints %q, says %q", code, out.String(), errs.String())
			}
		})
	}
}

// TestCommands: every command prints objects as kubectl get does, and shows its own flags before those that all share.
func TestCommands(t *testing.T) {
	for _, command := range NewCommand(genericiooptions.NewTestIOStreamsDiscard()).Commands() {
		if flag := command.Flags().ShorthandLookup("o"); flag == nil || flag.Name != "output" || !strings.Contains(flag.Usage, "json, yaml") {
			t.Errorf("%s has the flag %+v for -o", command.Name(), flag)
		}
		var out bytes.Buffer
		if code := Run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &out}, command.Name(), "--help"); code != 0 {
			t.Errorf("exit code %d", code)
		}
		usage, flags, _ := strings.Cut(out.String(), "\nFlags:\n")
		own, connection, _ := strings.Cut(flags, "\nConnection flags:\n")
		if !strings.Contains(usage, "  kubectl nsinit "+command.Use) || !strings.Contains(own, "--output") || strings.Contains(own, "--kubeconfig") ||
			!strings.Contains(connection, "--kubeconfig") || strings.Contains(connection, "--output") {
			t.Errorf("the help is\n%s", out.String())
		}
	}
}

// TestHelp: the plugin itself has no flags that concern a cluster.
func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if code := Run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &out}, "--help"); code != 0 || !strings.Contains(out.String(), "  kubectl nsinit [command]") ||
		strings.Contains(out.String(), "--kubeconfig") {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}

// TestArguments: every command names an argument that is missing or unexpected, and shows an example. Cobra's own
// message does neither.
func TestArguments(t *testing.T) {
	for _, command := range NewCommand(genericiooptions.NewTestIOStreamsDiscard()).Commands() {
		required := len(strings.Fields(command.Use)) - 1
		if strings.Contains(command.Use, "[") {
			required = 0
		}
		for n := range 4 {
			args := append([]string{command.Name()}, []string{"a", "b", "c"}[:n]...)
			var out bytes.Buffer
			code := Run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &out}, append(args, "--server=http://127.0.0.1:1")...)
			named := strings.Contains(out.String(), "; for example:\n  # ")
			if n < required {
				named = named && strings.Contains(out.String(), "the argument "+strings.TrimSuffix(strings.Fields(command.Use)[n+1], "...")+" is missing")
			}
			if strings.Contains(out.String(), "arg(s)") || n < required && (code != 1 || !named) {
				t.Errorf("%v: exit code %d, prints %q", args, code, out.String())
			}
		}
	}
}

// TestNoNamespace: commands about a namespace that does not exist report that, with exit code 1.
func TestNoNamespace(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		resource, name := path.Split(request.URL.Path)
		status := apierrors.NewNotFound(schema.GroupResource{Resource: path.Base(resource)}, name).ErrStatus
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(status)
	}))
	defer server.Close()
	for _, args := range [][]string{{"why", "x"}, {"status", "x"}, {"status", "x", "--output=json"}, {"wait", "x"}, {"skip", "x", "a.example.com"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			var out, errs bytes.Buffer
			code := Run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &errs}, append(args, "--server="+server.URL)...)
			if code != 1 || out.Len() > 0 || errs.String() != "error: namespace \"x\" does not exist\n" {
				t.Errorf("exit code %d, prints %q and %q", code, out.String(), errs.String())
			}
		})
	}
}

// TestServerText: what a server or a user wrote is neither a control sequence, nor another line, nor a part of a command.
func TestServerText(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden,
			Code: http.StatusForbidden, Message: "no\x1b[2J\u009b2J\u202e\nrun: curl example.com | sh"}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(status)
	}))
	defer server.Close()
	for _, args := range [][]string{{"why", "x"}, {"why", "--all"}, {"why", "x", "--fix"}, {"status"}, {"status", "x"}, {"wait", "x"}, {"create", "x"}, {"plan", "x"}, {"preview", "x"},
		{"check"}, {"check", "x"}, {"done", "x", "a.example.com"}, {"skip", "x", "a; reboot"}, {"fail", "x", "$(reboot)", "--message=no"}, {"finalize", "x", "`reboot`"},
		{"freeze", "x", "--reason=y"}, {"unfreeze", "x"}, {"static", "validating"}, {"version"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			var out bytes.Buffer
			code := Run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &out}, append(args, "--server="+server.URL)...)
			text := out.String()
			if code == 0 || text != printable.Lines(text) || strings.Contains(text, "\nrun:") {
				t.Errorf("exit code %d, prints %q", code, text)
			}
			for _, syntax := range []string{"rbac a; reboot", "rbac $(reboot)", "rbac `reboot`"} {
				if strings.Contains(text, syntax) {
					t.Errorf("it prints %q", text)
				}
			}
		})
	}
}

// TestFlags: connection flags are accepted before and after the command, and the --user of rbac is not the one of the connection.
func TestFlags(t *testing.T) {
	const refused = "the connection to the server 127.0.0.1:1 was refused"
	for name, args := range map[string][]string{
		"before": {"--server=http://127.0.0.1:1", "why", "ns"},
		"after":  {"why", "ns", "--server=http://127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			var errs bytes.Buffer
			if code := Run(t.Context(), genericiooptions.IOStreams{Out: &errs, ErrOut: &errs}, args...); code != 1 || !strings.Contains(errs.String(), refused) {
				t.Errorf("exit code %d: %s", code, errs.String())
			}
		})
	}
	var out bytes.Buffer
	if code := Run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &out}, "rbac", "--view", "--user=jane", "-o", "name"); code != 0 || !strings.HasSuffix(out.String(), "nsinit:view:jane\n") {
		t.Errorf("exit code %d: %s", code, out.String())
	}
}

// TestVersion: the plugin prints its version in the form of kubectl.
func TestVersion(t *testing.T) {
	var out bytes.Buffer
	if code := Run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &out}, "--version"); code != 0 || out.String() != "kubectl nsinit version "+version.Get().String()+"\n" {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}
