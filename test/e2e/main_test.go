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
	// These tests take a minute or more.
	framework.Main(m, "TestReplicas", "TestInstallation", "TestCertManager", "TestMonitoring", "TestConformanceFindsFaults", "TestLeastPrivilege",
		"TestDeletionStorm", "TestStrictNameReuse", "TestKill", "TestBothStories", "TestSystemControllers", "TestNamespaceTermination",
		"TestProvisionerConformance", "TestFullVolume", "TestServed", "TestProvisionerCrash", "TestFullQuota", "TestCertificates", "TestLostStorage")
}
