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

func TestMain(m *testing.M) { framework.Main(m) }
