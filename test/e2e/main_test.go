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
	framework.Main(m, "TestReplicas", "TestStrictNameReuse", "TestStrictNameReuseFull", "TestDeletionStorm", "TestBothStories",
		"TestConformanceFindsFaults", "TestObjectConformanceFindsFaults", "TestKill", "TestProtocolInShell", "TestSystemControllers",
		"TestServed", "TestProtocol", "TestClusterAdmission", "TestNamespaceTermination", "TestFullVolume",
		"TestSecurityMatrix", "TestProvisionerConformance", "TestCertificates", "TestLostStorage", "TestFullQuota", "TestWhyStuck",
		"TestPluginRBAC", "TestConformance", "TestProvisionerCrash", "TestCorruptLifecycle", "TestWhyNsinit", "TestFreeze",
		"TestContentIsKept", "TestWhyFix", "TestEtcdOutage")
}
