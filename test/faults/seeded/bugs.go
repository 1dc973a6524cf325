/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package seeded

import (
	"embed"
	"path"
	"regexp"
	"strings"
)

//go:embed patches/*.patch
var patches embed.FS

// Bug is a bug that somebody could make.
type Bug struct {
	// Name is the name of its patch, without the suffix.
	Name        string
	Description string
	// Fault selects, as a regular expression, the faults of the campaign that trigger it. Check is
	// the check that must find it then.
	Fault, Check string
	// Package and Test are the test that finds it without a control plane. They are empty for
	// what only a control plane shows.
	Package, Test string
}

const (
	lifecyclePackage = "./pkg/controller/lifecycle"
	storagePackage   = "./pkg/registry/nsinit/namespacelifecycle/storage"
	sourcePackage    = "./pkg/admission/plan"

	promises = "^TestControllerKeepsPromises$"
	writes   = "^TestAnySequenceOfWrites$"
	poller   = "^TestPollerProperties$"
)

// Bugs returns every bug.
func Bugs() []Bug {
	return append(controllerBugs(), append(serverBugs(), otherBugs()...)...)
}

func controllerBugs() []Bug {
	return []Bug{
		{"open-without-live-read", "the controller acts on its caches", "^leader paused past its lease$", "I4", lifecyclePackage, promises},
		{"no-uid-check", "the record of a former namespace counts for the next one of its name", "^namespace deleted at step: open$", "I4", lifecyclePackage, promises},
		{"open-though-failed", "a namespace opens although an initializer failed", "^kill -9 nsinit-controller-manager$", "I4", lifecyclePackage, promises},
		{"open-while-pending", "a namespace opens while its last initializer acts", "^kill -9 nsinit-controller-manager$", "I4", lifecyclePackage, promises},
		{"delete-without-precondition", "the deletion of a record does not name its UID", "^leader paused past its lease$", "I4", lifecyclePackage, promises},
		{"release-before-record", "a namespace is released before its record was removed", "^namespace deleted at step: open$", "I4", lifecyclePackage, promises},
		{"unsecured-participants", "participants act before the namespace has nsinit's finalizer", "^namespace deleted at step: second turn$", "I4", lifecyclePackage, promises},
		{"deadline-from-zero-time", "every deadline is missed at once", "^kill -9 nsinit-controller-manager$", "I4", lifecyclePackage, promises},
		{"ready-while-closed", "a closed namespace says that it is Ready", "^kill -9 nsinit-controller-manager$", "I2", lifecyclePackage, promises},
		{"ready-though-deleted", "a namespace that is deleted stays Ready while its record is released", "", "I2", lifecyclePackage, promises},
		{"end-before-secured", "an initialization ends by hand before the namespace has nsinit's finalizer", "", "I4", lifecyclePackage, promises},
		{"write-removes-namespace", "a report on a namespace without finalizers removes it with its content in storage", "", "I4", lifecyclePackage, promises},
	}
}

func serverBugs() []Bug {
	return []Bug{
		{"stale-plan", "a plan comes from a list of configurations that is too old", "^nsinit-apiserver to its etcd cut$", "Plan", sourcePackage, poller},
		{"no-storage-identity", "the lists of a storage that is not the right one count", "^storage of nsinit lost$", "I5", sourcePackage, poller},
		{"remove-others-entry", "an initializer removes another one, as only one entry is authorized", "^SIGSTOP nsinit-apiserver$", "Linearizable", storagePackage, writes},
		{"pending-out-of-order", "an entry leaves the list from anywhere", "^SIGSTOP nsinit-apiserver$", "Linearizable", storagePackage, writes},
		{"unconditional-update", "a write without a resourceVersion is accepted", "^SIGSTOP nsinit-apiserver$", "Linearizable", storagePackage, writes},
		{"force-allow-create", "a write to a subresource creates a record", "^namespace deleted at step: open$", "Linearizable", storagePackage, writes},
		{"review-error-ignored", "the error of a subject access review is an approval", "^nsinit-apiserver to kube-apiserver cut$", "Linearizable", storagePackage, writes},
		{"deleted-with-participants", "a record is removed while one participant holds it", "^namespace deleted at step: open$", "I4", storagePackage, writes},
	}
}

func otherBugs() []Bug {
	return []Bug{
		{"done-before-applied", "policy-population is done although objects could not be applied", "^dead webhook after the gate$", "I4",
			"./pkg/population/populator", "^TestClusterScoped$"},
		{"retry-for-another-record", "the SDK retries a write on the record of the next namespace", "^namespace deleted at step: first turn$", "I4",
			"./pkg/initializer", "^TestRetryMeetsNextIncarnation$"},
		{"namesakes-not-gated", "resources named namespaces are not gated", "", "I1", "./artifacts/policies", "^TestGatesDeny$"},
	}
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
