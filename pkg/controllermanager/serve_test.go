/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controllermanager

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/util/cert"
)

// TestLateFiles: an instance whose certificate is not made yet serves another one, and that from
// files as soon as both belong together.
func TestLateFiles(t *testing.T) {
	dir := t.TempDir()
	files := genericoptions.CertKey{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	options := func() *genericoptions.SecureServingOptions {
		o := genericoptions.NewSecureServingOptions()
		o.BindPort, o.ServerCert.CertDirectory, o.ServerCert.CertKey = 1, "", files
		return o
	}
	if o := options(); defaultCertificate(o, false) != nil || o.ServerCert.CertKey != files || o.ServerCert.GeneratedCert != nil {
		t.Error("who makes no certificates has to be given one: that the files are missing is an error")
	}

	o := options()
	if err := defaultCertificate(o, true); err != nil {
		t.Fatal(err)
	}
	served := o.ServerCert.GeneratedCert
	first, _ := served.CurrentCertKeyContent()
	if len(first) == 0 {
		t.Fatal("nothing is served meanwhile")
	}
	made, key, err := cert.GenerateSelfSignedCertKey("nsinit", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := cert.GenerateSelfSignedCertKey("nsinit", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(file string, data []byte) {
		t.Helper()
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		do           func()
		what         string
		served, keys []byte
	}{
		{func() { write(files.CertFile, made) }, "no key", first, nil},
		{func() { write(files.KeyFile, key) }, "both", made, key},
		{func() { write(files.CertFile, other) }, "a key of another certificate", made, key},
		{func() { _ = os.Remove(files.CertFile) }, "no certificate any more", made, key},
	} {
		step.do()
		gotCert, gotKey := served.CurrentCertKeyContent()
		if !bytes.Equal(gotCert, step.served) || step.keys != nil && !bytes.Equal(gotKey, step.keys) {
			t.Errorf("with %s, another certificate is served", step.what)
		}
	}

	write(files.CertFile, made)
	if o := options(); defaultCertificate(o, true) != nil || o.ServerCert.CertKey != files {
		t.Error("existing files are served by lateFiles, want the watched files")
	}
}
