/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package storageidentity distinguishes a lost storage from a new one. Both are empty, and an empty list
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
package storageidentity
