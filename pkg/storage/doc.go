/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package storage checks the identity of the storage, and how full it is.
//
// An Identity distinguishes a lost storage from a new one. Both are empty, and an empty list
// of configurations would open every gate. So the storage contains an identity, and a ConfigMap in
// the core API has the identity of the storage in use. While the two differ, requests for
// NamespaceLifecycles are refused. An administrator acknowledges the loss by deleting the ConfigMap.
//
//	identity in the storage   ConfigMap   result
//	-----------------------   ---------   -------------------------------------------------------
//	none                      none        new installation: an identity is written to both
//	some                      none        the loss was acknowledged: the ConfigMap is written
//	some                      the same    the storage is trusted
//	none                      some        the storage was lost: requests are refused
//	some                      another     the storage was replaced: requests are refused
//
// A Monitor reports why no object can be created, and reclaims unused space of the embedded etcd. etcd refuses every write once its
// database has the size of its quota. That includes deletions, because Kubernetes begins a deletion with an update. A Monitor of the
// embedded etcd therefore keeps a reserve for updates and deletions: it reports that nothing can be created when 90 percent of the quota is
// in use. Updates and deletions also add to the database, until old revisions are compacted and the database is defragmented. The Monitor
// does both when it is worth it, and clears the alarm that etcd raises at the quota. It only observes an external etcd cluster, which its
// operator maintains.
package storage
