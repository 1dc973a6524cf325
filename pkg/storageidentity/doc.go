/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package storageidentity tells a storage that was lost from one that is new. Both are
// empty, and an empty list of configurations would open every gate. So the storage carries
// an identity, and a ConfigMap in the core API names the one that is in use. While the two
// differ, records are refused, until an administrator deletes the ConfigMap and thereby
// acknowledges that what was stored is gone.
//
//	storage    ConfigMap   what follows
//	-------    ---------   ------------------------------------------------------------
//	none       none        a new installation: an identity is made and written to both
//	some       none        the ConfigMap is written; also what follows an acknowledgement
//	some       the same    everything is as it should be
//	none       some        the storage was lost: records are refused
//	some       another     the storage is another one: records are refused
package storageidentity
