//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package packaging

import (
	"testing"

	"github.com/nsinit/nsinit/test/e2e/framework"
)

func TestMain(m *testing.M) {
	// These tests take a minute or more.
	framework.Main(m, "TestRelease", "TestInstallation", "TestFailedForms", "TestFailedInstallation", "TestMonitoring", "TestLeastPrivilege",
		"TestCertManager", "TestGitOps")
}
