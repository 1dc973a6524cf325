/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package storagespace observes how full the storage is. It reports why nothing more can be created,
// and it gives back the space that the embedded etcd does not need.
//
// etcd refuses every write once its database has the size of its quota. That includes deletions,
// because Kubernetes begins a deletion with an update. A Monitor of the embedded etcd therefore keeps a
// reserve for updates and deletions: it reports that nothing can be created when 90 percent of the quota
// is in use. Updates and deletions also add to the database, until old revisions are compacted and
// the database is defragmented. The Monitor does both when it is worth it, and clears the alarm that
// etcd raises at the quota. An etcd cluster is its operator's: the Monitor only observes it.
package storagespace
