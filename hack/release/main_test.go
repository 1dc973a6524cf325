/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
)

const version = "v0.1.1-rc.1"

// input writes what hack/release.sh builds, as files of different times and modes, and returns the arguments.
func input(t *testing.T, at time.Time, mode os.FileMode) (output string, args []string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), mode), os.Chtimes(file, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	for _, platform := range []string{"linux-amd64", "linux-arm64"} {
		write("programs/"+platform+"/programs/nsinit-apiserver", "server for "+platform, 0o700|mode)
		write("programs/"+platform+"/programs/LICENSE", "free", 0o600|mode)
		write("programs/"+platform+"/plugin/kubectl-nsinit", "plugin for "+platform, 0o700|mode)
		write("output/kubectl-nsinit-"+platform+".tar.gz", "archive for "+platform, 0o600|mode)
	}
	write("output/kubectl-nsinit-windows-amd64.tar.gz", "archive", 0o600)
	if err := os.CopyFS(filepath.Join(dir, "source", "artifacts"), os.DirFS("../../artifacts")); err != nil {
		t.Fatal(err)
	}
	output = filepath.Join(dir, "output")
	return output, []string{
		"--version=" + version, "--commit=0123456789abcdef0123456789abcdef01234567", "--epoch=1790000000", "--repository=registry.example.com/team/nsinit",
		"--platforms=linux/amd64 linux/arm64 windows/amd64", "--programs=" + filepath.Join(dir, "programs"), "--source=" + filepath.Join(dir, "source"), "--output=" + output,
	}
}

// privateKey sets the variables that name a new private key, and returns its public key.
func privateKey(t *testing.T) signature.Verifier {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	data, err := encrypted.Encrypt(der, []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cosign.key")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED SIGSTORE PRIVATE KEY", Bytes: data}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(keyVariable, file)
	t.Setenv(passwordVariable, "secret")
	verifier, err := signature.LoadVerifier(&private.PublicKey, crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return verifier
}

func read(t *testing.T, elements ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// open unpacks the archive of a layout, and returns its manifests by their kind.
func open(t *testing.T, file string) (layout.Path, map[string]v1.Descriptor) {
	t.Helper()
	dir := t.TempDir()
	for name, data := range unpack(t, bytes.NewReader(read(t, file))) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	path, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	index, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]v1.Descriptor{}
	for _, descriptor := range manifest.Manifests {
		found[descriptor.Annotations[kind]] = descriptor
	}
	return path, found
}

// unpack returns the files of a tar archive. It checks that they have the same time and owner.
func unpack(t *testing.T, reader io.Reader) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for archive := tar.NewReader(reader); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.ModTime.Unix() != 1790000000 || header.Uid != 0 || header.Gid != 0 || header.Mode&0o022 != 0 {
			t.Errorf("%s has time %s, owner %d:%d and mode %o", header.Name, header.ModTime, header.Uid, header.Gid, header.Mode)
		}
		if header.Typeflag == tar.TypeReg {
			if all[header.Name], err = io.ReadAll(archive); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestReproducible: a second build gives the same files, except for signatures. The image has the same digest with and
// without them.
func TestReproducible(t *testing.T) {
	privateKey(t)
	var outputs []string
	for i, args := range [][]string{nil, nil, {"--unsigned"}} {
		output, more := input(t, time.Unix(int64(1000*i), 0), os.FileMode(0o22*(i%2)))
		if err := run(append(more, args...)); err != nil {
			t.Fatal(err)
		}
		outputs = append(outputs, output)
	}
	signed := []string{"SHA256SUMS", "SHA256SUMS.sig", "cosign.pub", "nsinit-chart.tar", "nsinit-image.tar", "provenance.intoto.jsonl", "provenance.json"}
	entries, err := os.ReadDir(outputs[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		for _, other := range outputs[1:] {
			if !slices.Contains(signed, entry.Name()) && !bytes.Equal(read(t, outputs[0], entry.Name()), read(t, other, entry.Name())) {
				t.Errorf("%s differs in %s", entry.Name(), other)
			}
		}
	}
	_, first := open(t, filepath.Join(outputs[0], imageFile))
	_, second := open(t, filepath.Join(outputs[1], imageFile))
	_, without := open(t, filepath.Join(outputs[2], imageFile))
	if a, b, c := first[kindIndex].Digest, second[kindIndex].Digest, without[kindIndex].Digest; a != b || a != c || a.Hex == "" {
		t.Errorf("the digests of the image are %s, %s and %s", a, b, c)
	}
	if len(first) != 3 || len(without) != 1 {
		t.Errorf("the layouts have %d and %d manifests", len(first), len(without))
	}
}

// TestImage: each platform has its programs, the certificates, the user and the labels.
func TestImage(t *testing.T) {
	output, args := input(t, time.Now(), 0)
	if err := run(append(args, "--unsigned")); err != nil {
		t.Fatal(err)
	}
	path, found := open(t, filepath.Join(output, imageFile))
	root, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	if found[kindIndex].Annotations[refName] != version {
		t.Errorf("the image is %v", found[kindIndex])
	}
	index, err := root.ImageIndex(found[kindIndex].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Annotations["org.opencontainers.image.version"] != version || manifest.Annotations["org.opencontainers.image.revision"] == "" {
		t.Errorf("the annotations are %v", manifest.Annotations)
	}
	for i, platform := range []string{"linux/amd64", "linux/arm64"} {
		if len(manifest.Manifests) != 2 || manifest.Manifests[i].Platform.String() != platform {
			t.Fatalf("the platforms are %v", manifest.Manifests)
		}
		image, err := index.Image(manifest.Manifests[i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Platform().String() != platform || config.Config.User != "65532:65532" || config.Created.Unix() != 1790000000 ||
			config.Config.Labels["org.opencontainers.image.source"] != home || config.Config.Labels["org.opencontainers.image.version"] != version {
			t.Errorf("the configuration for %s is %+v", platform, config)
		}
		all := unpack(t, mutate.Extract(image))
		if got := string(all["nsinit-apiserver"]); got != "server for "+strings.ReplaceAll(platform, "/", "-") {
			t.Errorf("the program for %s is %q", platform, got)
		}
		pool := x509.NewCertPool()
		if authorities := all["etc/ssl/certs/ca-certificates.crt"]; !pool.AppendCertsFromPEM(authorities) || bytes.Count(authorities, []byte("BEGIN CERTIFICATE")) < 50 {
			t.Errorf("there are %d bytes of certificates", len(authorities))
		}
		if len(all) != 3 {
			t.Errorf("the image has %d files", len(all))
		}
	}
}

// TestSignatures: the image, the chart, the files and their provenance are signed with the key.
func TestSignatures(t *testing.T) {
	verifier := privateKey(t)
	output, args := input(t, time.Now(), 0)
	if err := run(args); err != nil {
		t.Fatal(err)
	}
	for file, subjectKind := range map[string]string{imageFile: kindIndex, "nsinit-chart.tar": kindImage} {
		path, found := open(t, filepath.Join(output, file))
		layer := func(kind string) (v1.Descriptor, []byte) {
			image, err := path.Image(found[kind].Digest)
			if err != nil {
				t.Fatal(err)
			}
			manifest, err := image.Manifest()
			if err != nil {
				t.Fatal(err)
			}
			data, err := path.Bytes(manifest.Layers[0].Digest)
			if err != nil {
				t.Fatal(err)
			}
			return manifest.Layers[0], data
		}
		descriptor, claim := layer(kindSignature)
		signed, err := base64.StdEncoding.DecodeString(descriptor.Annotations[signatureAnnotation])
		if err != nil {
			t.Fatal(err)
		}
		if err := verifier.VerifySignature(bytes.NewReader(signed), bytes.NewReader(claim)); err != nil || !bytes.Contains(claim, []byte(found[subjectKind].Digest.String())) {
			t.Errorf("%s: %v for %s", file, err, claim)
		}
		_, envelope := layer(kindStatement)
		if got := subjects(t, verifier, envelope); len(got) != 1 || got[0] != found[subjectKind].Digest.Hex {
			t.Errorf("%s: the provenance is about %v, want %s", file, got, found[subjectKind].Digest)
		}
	}
	sums := string(read(t, output, sumsFile))
	signed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(read(t, output, sumsFile+".sig"))))
	if err != nil {
		t.Fatal(err)
	}
	if err := verifier.VerifySignature(bytes.NewReader(signed), strings.NewReader(sums)); err != nil {
		t.Error(err)
	}
	proven := subjects(t, verifier, read(t, output, provenanceFile))
	entries, err := os.ReadDir(output)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if own := []string{sumsFile, sumsFile + ".sig"}; slices.Contains(own, entry.Name()) {
			continue
		}
		sum, _, err := v1.SHA256(bytes.NewReader(read(t, output, entry.Name())))
		if err != nil || !strings.Contains(sums, sum.Hex+"  "+entry.Name()+"\n") {
			t.Errorf("there is no checksum of %s, %v", entry.Name(), err)
		}
		if own := []string{provenanceFile, publicKeyFile}; !slices.Contains(own, entry.Name()) && !slices.Contains(proven, sum.Hex) {
			t.Errorf("there is no provenance of %s", entry.Name())
		}
	}
	if public, err := cryptoutils.UnmarshalPEMToPublicKey(read(t, output, publicKeyFile)); err != nil || cryptoutils.EqualKeys(public, must(verifier.PublicKey())) != nil {
		t.Errorf("the public key is %v, %v", public, err)
	}
}

func must(key crypto.PublicKey, err error) crypto.PublicKey {
	if err != nil {
		return err
	}
	return key
}

// subjects returns the digests in a signed provenance.
func subjects(t *testing.T, verifier signature.Verifier, envelope []byte) []string {
	t.Helper()
	if err := dsse.WrapVerifier(verifier).VerifySignature(bytes.NewReader(envelope), nil); err != nil {
		t.Fatal(err)
	}
	var wrapped struct{ Payload []byte }
	var statement struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []struct{ Digest map[string]string }
		Predicate     struct {
			BuildDefinition struct {
				ExternalParameters struct {
					Platforms []string
					Snapshot  *bool
				}
				ResolvedDependencies []struct{ Digest map[string]string }
			}
			RunDetails struct{ Builder struct{ ID string } }
		}
	}
	if err := errors.Join(json.Unmarshal(envelope, &wrapped), json.Unmarshal(wrapped.Payload, &statement)); err != nil {
		t.Fatal(err)
	}
	if statement.Type != "https://in-toto.io/Statement/v1" || statement.PredicateType != predicateType || statement.Predicate.RunDetails.Builder.ID == "" ||
		statement.Predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"] != "0123456789abcdef0123456789abcdef01234567" {
		t.Errorf("the statement is %s", wrapped.Payload)
	}
	if external := statement.Predicate.BuildDefinition.ExternalParameters; len(external.Platforms) != 3 || external.Snapshot == nil || *external.Snapshot {
		t.Errorf("the parameters in %s are not all platforms and no snapshot", wrapped.Payload)
	}
	var digests []string
	for _, subject := range statement.Subject {
		digests = append(digests, subject.Digest["sha256"])
	}
	return digests
}

// TestKey: without a usable key, there is no release, and the error says what to do.
func TestKey(t *testing.T) {
	privateKey(t)
	for name, test := range map[string]struct{ variable, value, want string }{
		"none":           {keyVariable, "", "set COSIGN_KEY to the file of a private key of cosign generate-key-pair, and COSIGN_PASSWORD to its password; or set UNSIGNED=true"},
		"missing":        {keyVariable, "/no/such/file", "COSIGN_KEY: cannot read a private key of cosign generate-key-pair from /no/such/file with the password in COSIGN_PASSWORD: open"},
		"no key":         {keyVariable, "../../LICENSE", "from ../../LICENSE with the password in COSIGN_PASSWORD: PEM decoding failed"},
		"wrong password": {passwordVariable, "guess", "with the password in COSIGN_PASSWORD: encrypted: decryption failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(test.variable, test.value)
			_, args := input(t, time.Now(), 0)
			if err := run(args); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v\nwant %s", err, test.want)
			}
		})
	}
}

// TestManifests: the overlays, the rendered manifests and the chart have the digest of the image, and the manifest for krew has
// the checksums of the archives.
func TestManifests(t *testing.T) {
	output, args := input(t, time.Now(), 0)
	if err := run(append(args, "--unsigned")); err != nil {
		t.Fatal(err)
	}
	_, found := open(t, filepath.Join(output, imageFile))
	image := "registry.example.com/team/nsinit@" + found[kindIndex].Digest.String()
	if name := found[kindIndex].Annotations[imageName]; name != image {
		t.Errorf("containerd imports the image as %q", name)
	}
	for _, overlay := range []string{"embedded", "ha", "embedded-cert-manager", "ha-cert-manager"} {
		images := 3
		if strings.HasPrefix(overlay, "embedded") {
			images = 4 // etcd
		}
		webhook := string(read(t, output, "install-"+overlay+"-stamp-webhook.yaml"))
		if strings.Contains(webhook, "kind: MutatingAdmissionPolicy") || !strings.Contains(webhook, "  name: nsinit-stamp-opened-by\n") || strings.Count(webhook, "image: "+image) != images {
			t.Errorf("install-%s-stamp-webhook.yaml has the policy in place of the webhook, or another image:\n%s", overlay, webhook)
		}
		text := string(read(t, output, "install-"+overlay+".yaml"))
		if strings.Count(text, "image: "+image) != images || strings.Count(text, "image: ") != images {
			t.Errorf("install-%s.yaml has %d images %s of %d", overlay, strings.Count(text, image), image, strings.Count(text, "image: "))
		}
		// docs/install.md says to set the addresses of etcd there.
		if strings.HasPrefix(overlay, "ha") != strings.Contains(text, "name: ETCD_SERVERS\n") {
			t.Errorf("install-%s.yaml: want the variable ETCD_SERVERS with ha only", overlay)
		}
		if !strings.Contains(text, "\nkind: ResourceQuota\n") {
			t.Errorf("install-%s.yaml has no quota for the priority class of its pods", overlay)
		}
		// The overlay's order: the policies refuse namespaces, and come after what they need.
		if first, last := strings.Index(text, "kind: Namespace\n"), strings.Index(text, "kind: MutatingAdmissionPolicy\n"); first > last || strings.Index(text, "kind: ClusterRole\n") > last {
			t.Errorf("install-%s.yaml is not in the order of the overlay", overlay)
		}
	}
	expanded := func(name string) map[string][]byte {
		reader, err := gzip.NewReader(bytes.NewReader(read(t, output, name)))
		if err != nil {
			t.Fatal(err)
		}
		return unpack(t, reader)
	}
	if text := expanded("nsinit-manifests.tar.gz")["artifacts/deploy/overlays/ha/kustomization.yaml"]; !bytes.Contains(text, []byte("digest: "+found[kindIndex].Digest.String())) {
		t.Errorf("the overlay is\n%s", text)
	}
	chart := expanded("nsinit-0.1.1-rc.1.tgz")
	for file, wants := range map[string][]string{
		"nsinit/values.yaml": {"repository: registry.example.com/team/nsinit\n", "digest: " + found[kindIndex].Digest.String() + "\n"},
		"nsinit/Chart.yaml":  {"\nversion: 0.1.1-rc.1\n", "\nappVersion: " + version + "\n", `prerelease: "true"`, "image: " + image + "\n      platforms: [linux/amd64, linux/arm64]\n"},
	} {
		for _, want := range wants {
			if !bytes.Contains(chart[file], []byte(want)) {
				t.Errorf("%s is\n%s\nwithout %q", file, chart[file], want)
			}
		}
	}
	krew := string(read(t, output, "krew-nsinit.yaml"))
	for platform, program := range map[string]string{"linux-amd64": "kubectl-nsinit", "linux-arm64": "kubectl-nsinit", "windows-amd64": "kubectl-nsinit.exe"} {
		archive := "kubectl-nsinit-" + platform + ".tar.gz"
		sum, _, err := v1.SHA256(bytes.NewReader(read(t, output, archive)))
		want := fmt.Sprintf("      uri: %s/releases/download/%s/%s\n      sha256: %s\n      bin: %s\n", home, version, archive, sum.Hex, program)
		if err != nil || !strings.Contains(krew, want) {
			t.Errorf("%v: there is no\n%s in\n%s", err, want, krew)
		}
	}
}

// TestOwnKustomization: the kustomization in docs/install.md sets the image, and keeps the order, in which the gate and the guard come
// before the stamp.
func TestOwnKustomization(t *testing.T) {
	_, args := input(t, time.Now(), 0)
	if err := run(append(args, "--repository=ghcr.io/nsinit/nsinit", "--unsigned")); err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(read(t, "../../docs/install.md")), "\n### A kustomization of your own\n")
	_, text, _ := strings.Cut(section, "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	own := filepath.Join(sourceOf(args), "artifacts", "deploy", "own")
	if err := errors.Join(os.Mkdir(own, 0o700), os.WriteFile(filepath.Join(own, "kustomization.yaml"), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	built, err := build(own)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if strings.Count(string(built), "image: registry.example.com/nsinit@sha256:") != 4 {
		t.Errorf("the image is not set in\n%s", built)
	}
	if gate, stamp := bytes.Index(built, []byte("  name: nsinit-gate\n")), bytes.Index(built, []byte("kind: MutatingAdmissionPolicy\n")); gate < 0 || stamp < gate {
		t.Errorf("the gate is at %d, and the stamp at %d", gate, stamp)
	}
}

// sourceOf returns the folder in the flag --source.
func sourceOf(args []string) string {
	for _, arg := range args {
		if dir, is := strings.CutPrefix(arg, "--source="); is {
			return dir
		}
	}
	return ""
}

// TestPrerelease: a chart is marked as a pre-release before 1.0, and if its version has a suffix.
func TestPrerelease(t *testing.T) {
	for version, want := range map[string]bool{"0.1.0": true, "0.10.2": true, "1.0.0-rc.1": true, "1.0.0": false, "10.1.0": false} {
		if got := prerelease(version); got != want {
			t.Errorf("%s: %v", version, got)
		}
	}
}
