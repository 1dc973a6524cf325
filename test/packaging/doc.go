/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package packaging tests how nsinit is delivered, and how it works with the programs of others: manifests, chart, release,
// alerts and dashboard, cert-manager, Flux, Helm, Argo CD and the namespaces of OpenShift. make test-all runs these tests. make
// test does not: it tests the behaviour of nsinit, in test/e2e. Both packages use test/e2e/framework.
//
// A test belongs here if only a change to a manifest, to a build script or to the version of another program can break it. If a
// change to the behaviour of nsinit can break it, then a test of make test fails, too:
//
//   - TestExamples and TestInstallation: the validation tests of pkg/apis/nsinit/validation; TestPluginCheck, and TestInspectBefore of
//     pkg/cli/check; TestSnapshot and TestRecover of pkg/embeddedetcd, and TestLostStorage, for a restored storage; TestReplicas for
//     programs that are replaced one by one; TestGuardFinalizer and TestContentIsKept for finalizers that an administrator removes.
//   - TestLeastPrivilege: the control plane of every end-to-end test applies artifacts/deploy/base, and its programs have the
//     identities of their service accounts. So a permission that is missing fails TestStory, TestParticipant or TestPopulation.
//     Only TestLeastPrivilege finds a permission that is not used.
//   - TestRelease: TestPluginVersion and those of TestInstallation.
//   - TestCertManager: TestCertificates, in which nsinit-apiserver serves renewed certificates from files, and no request fails.
//   - TestMonitoring and TestDashboards: TestMetricsExist of artifacts/deploy, for the metrics of the alerts and of the dashboard,
//     and the tests of the collectors, for their values.
//   - TestGitOps: TestApplyJustWorks and TestEarlyWrites, for refused writes and answers that ask to retry; TestFailure.
//   - TestGitOpsHealth: TestConditionsHaveObservedGeneration of sdk/apis/nsinit/v1alpha1; TestStory, TestStalled, TestFailure,
//     TestFreeze and TestRollout, for the conditions.
//   - TestOpenShiftExample: TestParticipant and TestFinalizeKeepsOrder, for finalizers of others; TestPostFinalize of pkg/apiserver.
//
// The tests of test/e2e that call framework.Environment run with them:
//
//   - TestNamespaceTermination, without kube-controller-manager: the tests of pkg/controller/termination.
//   - TestStaticPolicies, with policies that kube-apiserver reads from files: TestGuard, TestGate and TestStamp, for the same policies as
//     objects; the tests of pkg/cli/static.
//   - TestWhyWithoutNsinit: the tests of pkg/diagnosis.
//   - TestProtocolInShell: TestProtocol, which does the same in Python.
//   - TestConformanceFindsFaults: TestConformance.
//   - TestObjectConformanceFindsFaults: TestObjectConformance.
package packaging
