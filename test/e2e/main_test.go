//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"testing"

	"github.com/nsinit/nsinit/test/e2e/framework"
)

func TestMain(m *testing.M) {
	// These tests take half a minute or more.
	framework.Main(m, "TestInstallation", "TestStrictNameReuse", "TestMonitoring", "TestReplicas", "TestConformanceFindsFaults", "TestKill", "TestServed",
		"TestSystemControllers", "TestDeletionStorm", "TestBothStories", "TestLeastPrivilege", "TestNamespaceTermination", "TestFullVolume",
		"TestProvisionerConformance", "TestCertManager", "TestLostStorage", "TestSecurityMatrix", "TestCertificates", "TestConformance", "TestGate",
		"TestFullQuota", "TestWhyStuck", "TestOpenShiftExample", "TestFreshness", "TestCorruptLifecycle", "TestApplyJustWorks", "TestWhyNsinit",
		"TestProvisionerCrash", "TestClusterAdmission", "TestGitOps", "TestGitOpsHealth")
}
