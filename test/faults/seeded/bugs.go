/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package seeded

import (
	"embed"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

//go:embed patches/*.patch
var patches embed.FS

// Bug is a bug that nsinit had, or that a change could introduce.
type Bug struct {
	// Name is the name of its patch, without the suffix.
	Name        string
	Description string
	// Found says what found it, and Fix is the commit that repaired it. They are empty for a bug that nsinit never had.
	Found, Fix string
	// Fault selects, as a regular expression, the faults of the campaign that trigger it. It is empty for
	// what they trigger too rarely. Check is the check that must find it.
	Fault, Check string
	// Package and Test are the test that finds it without a control plane. They are empty for
	// what only a control plane shows.
	Package, Test string
}

const (
	lifecyclePackage = "./pkg/controller/lifecycle"
	storagePackage   = "./pkg/registry/nsinit/namespacelifecycle"
	planPackage      = "./pkg/plan"
	readerPackage    = "./pkg/admission"

	// ordinary is a fault that leaves the traffic as it is, so that many namespaces open and go.
	ordinary = "^deleted storage ConfigMap$"

	promises = "^TestControllerKeepsPromises$"
	writes   = "^TestAnySequenceOfWrites$"
	reads    = "^TestReaderProperties$"
	merged   = "^TestPlanProperties$"
	admitted = "^TestAdmittedPlan$"
)

// Bugs returns every bug.
func Bugs() []Bug {
	return slices.Concat(controllerBugs(), serverBugs(), otherBugs(), realBugs())
}

func seeded(name, description, fault, check, pkg, test string) Bug {
	return Bug{Name: name, Description: description, Fault: fault, Check: check, Package: pkg, Test: test}
}

func controllerBugs() []Bug {
	return []Bug{
		seeded("act-without-live-read", "the controller takes every step on its caches", "", "I4", lifecyclePackage, promises),
		seeded("no-uid-check", "the NamespaceLifecycle of a former namespace counts for the next one of its name", "", "I4", lifecyclePackage, promises),
		seeded("open-though-failed", "a namespace opens although an initializer failed", ordinary, "I4", lifecyclePackage, promises),
		seeded("open-while-pending", "a namespace opens while its last initializer acts", ordinary, "I4", lifecyclePackage, promises),
		seeded("delete-without-precondition", "the deletion of a NamespaceLifecycle does not name its UID", "", "I4", lifecyclePackage, promises),
		seeded("release-before-record", "a namespace is released before its NamespaceLifecycle was removed", ordinary, "I4", lifecyclePackage, promises),
		seeded("content-released-early", "the content of a namespace is deleted before the last participant that holds it has cleaned up", ordinary, "I4", lifecyclePackage, promises),
		seeded("unsecured-participants", "participants act before the namespace has nsinit's finalizer", ordinary, "I4", lifecyclePackage, promises),
		seeded("deadline-from-zero-time", "every deadline is missed immediately", "", "I4", lifecyclePackage, promises),
		seeded("skip-another", "at a deadline, the first of several current initializers is skipped", "", "I4", lifecyclePackage, promises),
		seeded("ready-while-closed", "a closed namespace says that it is Ready", ordinary, "I2", lifecyclePackage, promises),
		seeded("ready-though-deleted", "a namespace that is deleted stays Ready while its NamespaceLifecycle is released", "", "I2", lifecyclePackage, promises),
		seeded("not-deleted-after-failure", "a namespace stays after its initialization failed", ordinary, "I2", lifecyclePackage, promises),
		seeded("end-before-secured", "an initialization ends by hand before the namespace has nsinit's finalizer", "", "I4", lifecyclePackage, promises),
		seeded("write-removes-namespace", "a report on a namespace without finalizers removes it with its content in storage", "", "I4", lifecyclePackage, promises),
	}
}

func serverBugs() []Bug {
	return []Bug{
		seeded("merge-in-reverse", "configurations are merged in the reverse order of their names", ordinary, "Plan", planPackage, merged),
		seeded("participants-forgotten", "the participants of a plan do not hold its NamespaceLifecycle", ordinary, "I4", "./pkg/admission", admitted),
		seeded("wrong-turn", "the second of five pending initializers becomes the current one", "", "I2", storagePackage, writes),
		seeded("stale-plan", "a plan comes from a read of the configurations that began before the request", "^flapping configurations$", "Plan", readerPackage, reads),
		seeded("no-storage-identity", "a read from a storage that is not the right one counts", "", "I5", readerPackage, reads),
		seeded("remove-others-entry", "an initializer removes another one, as only one entry is authorized", ordinary, "I4", storagePackage, writes),
		seeded("pending-out-of-order", "an entry leaves the list from anywhere", ordinary, "Linearizable", storagePackage, writes),
		seeded("unconditional-update", "a write without a resourceVersion is accepted", "^initializer to kube-apiserver dropped$", "Linearizable", storagePackage, writes),
		seeded("force-allow-create", "a write to a subresource creates a NamespaceLifecycle", "", "Linearizable", storagePackage, writes),
		seeded("review-error-ignored", "the error of a subject access review is an approval", "", "Linearizable", storagePackage, writes),
		seeded("deleted-with-participants", "a NamespaceLifecycle is removed while one participant holds it", "", "I4", storagePackage, writes),
	}
}

func otherBugs() []Bug {
	return []Bug{
		seeded("done-before-applied", "policy-population is done although objects could not be applied", "", "I4",
			"./pkg/population", "^TestClusterScoped$"),
		seeded("patch-another-record", "the SDK removes its entry from the NamespaceLifecycle of the next namespace", "", "I4",
			"./test/sdk", "^TestRetryMeetsNextIncarnation$"),
		seeded("last-gate-omitted", "new pods and Jobs do not wait for the last of several initializers", ordinary, "I6", "./pkg/controller/objects", "^TestStamp$"),
		seeded("rollout-of-frozen", "a rollout changes namespaces that are frozen", ordinary, "I7", "./pkg/population", "^TestIsOpen$"),
		seeded("readiness-ignored", "a namespace opens before its objects are ready", "^SIGSTOP kube-controller-manager$", "I8", "./pkg/population", "^TestReadyDeleted$"),
		seeded("no-opinion-is-approval", "a user sees each AccessibleNamespace that no authorizer denies", ordinary, "I9", "./pkg/registry/nsinit/accessiblenamespace", "^TestWhoSees$"),
		seeded("namesakes-not-gated", "resources named namespaces are not gated", "", "I1", "./artifacts", "^TestGatesDeny$"),
	}
}

// Table is the table of the bugs in README.md.
func Table() string {
	var table strings.Builder
	table.WriteString("| bug | what it does | found by, fixed in | test that finds it | fault and check that find it |\n| --- | --- | --- | --- | --- |\n")
	for _, b := range Bugs() {
		found, campaign := "–", "–"
		if b.Found != "" {
			found = b.Found + ", " + b.Fix
		}
		if b.Fault != "" {
			campaign = strings.Trim(b.Fault, "^$") + ": " + b.Check
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s |\n", b.Name, b.Description, found, strings.Trim(b.Test, "^$"), campaign)
	}
	return table.String()
}

// Patch returns the patch that makes the bug.
func (b Bug) Patch() ([]byte, error) { return patches.ReadFile(path.Join("patches", b.Name+".patch")) }

// Files returns the files that a patch changes.
func Files(patch []byte) []string {
	var files []string
	for _, match := range regexp.MustCompile(`(?m)^\+\+\+ b/(.*)$`).FindAllStringSubmatch(string(patch), -1) {
		files = append(files, strings.TrimSpace(match[1]))
	}
	return files
}
