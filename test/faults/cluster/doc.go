/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package cluster runs the control plane of the fault campaign as processes on loopback: several
// kube-apiservers, kube-scheduler, an etcd cluster of nsinit's own, and replicas of each program. The nodes are objects without
// a kubelet, so pods are bound and never run. Connections between
// programs go through named links of package proxy.
//
// A program that exits is restarted, as package controlplane does. A program that Kill or Stop ended
// stays down until StartProgram. The programs end with the process that called Start.
//
// Replica i of a program uses kube-apiserver i. The links are:
//
//	kube-apiserver-I/etcd                  everything, but for I > 0 without:
//	kube-apiserver-I/etcd:namespaces       namespaces
//	kube-apiserver-I/etcd:policies         admission policies and their bindings
//	kube-apiserver-I/etcd:configmaps       ConfigMaps, among them the parameters of the policies
//	kube-controller-manager/kube-apiserver
//	kube-scheduler/kube-apiserver
//	nsinit-apiserver-I/kube-apiserver
//	nsinit-apiserver-I/etcd                all members of nsinit's etcd; none if it is embedded
//	nsinit-etcd-I/peers                    what the other members send to this one on connections that they open
//	nsinit-controller-manager-I/kube-apiserver
//	policy-population-I/kube-apiserver
//	aggregator                             from each kube-apiserver to the replicas that are ready
//	aggregator/nsinit-apiserver-I          from there to one replica
//
// Admin, KubeEtcd, NsinitEtcd and the probes of replicas use no link.
package cluster
