/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package installation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// Exemptions is the ConfigMap that says which new namespaces are exempt, which means that they are not closed. Its keys
	// are below. A value has one entry on each line.
	Exemptions = "nsinit-exemptions"

	// KeyNamespaces is the key with the names of exempt namespaces.
	KeyNamespaces = "namespaces"
	// KeyNamePrefixes is the key with the prefixes of names of exempt namespaces.
	KeyNamePrefixes = "namePrefixes"
	// KeyUsers is the key with the users whose new namespaces are exempt.
	KeyUsers = "users"
	// KeyGroups is the key with the groups whose members' new namespaces are exempt.
	KeyGroups = "groups"
	// KeyOnlyGroups is the key with the groups whose members' new namespaces are closed. All others are exempt. The key has no
	// effect if it has no entry, or a malformed line.
	KeyOnlyGroups = "onlyGroups"

	// RemovedNamespaces is the ConfigMap that lists the names for which no namespace can be created yet.
	RemovedNamespaces = "nsinit-removed-namespaces"
)

// ExemptionList is the content of the ConfigMap Exemptions. The admission policies read the same ConfigMap with an expression in
// CEL, and must agree with Exempt. A missing key has no entries.
type ExemptionList struct {
	// Source names the ConfigMap, for people.
	Source string
	// entries are what exempts by key, without malformed ones.
	entries map[string][]Exemption
	// Malformed are the lines without effect and the unknown keys, each with the reason, in the order of keys and lines.
	Malformed []string
}

// Creation is the creation of a namespace, as admission sees it.
type Creation struct {
	// Name is empty while the server has not generated it.
	Name, GenerateName string
	Creator            string
	Groups             []string
}

// Exemption says why a namespace is exempt.
type Exemption struct {
	// Key is the key of the ConfigMap.
	Key string `json:"key"`
	// Line is the number of the line in the value of the key, from 1. It is 0 for KeyOnlyGroups, which exempts if no line
	// matches.
	Line int `json:"line,omitempty"`
	// Value is the entry on the line.
	Value string `json:"value,omitempty"`
}

// String returns a text such as: line 2 of users, "system:serviceaccount:olm:operator".
func (e Exemption) String() string {
	if e.Key == KeyOnlyGroups {
		return "no group of the creator is in " + KeyOnlyGroups
	}
	return fmt.Sprintf("line %d of %s, %q", e.Line, e.Key, e.Value)
}

// ParseExemptions reads the ConfigMap. White space around an entry, empty lines, and lines that start with # have no effect.
func ParseExemptions(configMap *corev1.ConfigMap) *ExemptionList {
	list := &ExemptionList{Source: fmt.Sprintf("ConfigMap %s/%s", configMap.Namespace, configMap.Name), entries: map[string][]Exemption{}}
	for _, key := range exemptionKeys() {
		list.parse(key, configMap.Data[key])
	}
	for _, key := range unknownKeys(configMap) {
		list.Malformed = append(list.Malformed, fmt.Sprintf("key %q is unknown: the keys are %s", key, strings.Join(exemptionKeys(), ", ")))
	}
	return list
}

func exemptionKeys() []string {
	return []string{KeyNamespaces, KeyNamePrefixes, KeyUsers, KeyGroups, KeyOnlyGroups}
}

func unknownKeys(configMap *corev1.ConfigMap) (unknown []string) {
	for key := range configMap.Data {
		if !slices.Contains(exemptionKeys(), key) {
			unknown = append(unknown, key)
		}
	}
	for key := range configMap.BinaryData {
		unknown = append(unknown, key)
	}
	slices.Sort(unknown)
	return unknown
}

// parse adds the entries of a key.
func (l *ExemptionList) parse(key, text string) {
	number, malformed := 0, false
	for line := range strings.SplitSeq(text, "\n") {
		number++
		value := strings.TrimSpace(line)
		if value == "" || strings.HasPrefix(value, "#") {
			continue
		}
		if reason := malformedEntry(key, value); reason != "" {
			malformed = true
			l.Malformed = append(l.Malformed, fmt.Sprintf("line %d of %s, %q: %s", number, key, value, reason))
			continue
		}
		l.entries[key] = append(l.entries[key], Exemption{key, number, value})
	}
	// Without one of its groups, this key would exempt more namespaces than its author wanted.
	if key == KeyOnlyGroups && malformed {
		delete(l.entries, key)
	}
}

// namePattern matches names of namespaces, prefixPattern what a name can start with, and creatorPattern names of users and
// groups. The last one is also in the admission policies. It refuses what is more likely a mistake than a name: an item of a list
// in YAML, quotes, wildcards, a comment after a name, and characters that are not visible.
var (
	namePattern    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	prefixPattern  = regexp.MustCompile(`^[a-z0-9][-a-z0-9]{0,62}$`)
	creatorPattern = regexp.MustCompile(`^[^ "\x27*\-\pC]([^ *\pC]| +[^ #*\pC])*$`)
)

// malformedEntry says why an entry has no effect, or returns "".
func malformedEntry(key, value string) string {
	switch {
	case key == KeyNamespaces && !namePattern.MatchString(value):
		return "it is not the name of a namespace; give one name on each line"
	case key == KeyNamePrefixes && !prefixPattern.MatchString(value):
		return "it is not the start of the name of a namespace; give one prefix on each line, without a wildcard"
	case key == KeyNamespaces, key == KeyNamePrefixes, creatorPattern.MatchString(value):
		return ""
	}
	reason := "it is not the name of a user; give one name on each line, without a dash, quotes, wildcards or a comment"
	if key != KeyUsers {
		reason = strings.Replace(reason, "user", "group", 1)
	}
	if key == KeyOnlyGroups {
		reason += "; until the line is corrected, " + KeyOnlyGroups + " has no effect, and namespaces of all groups are closed"
	}
	return reason
}

// Exempt returns why a new namespace is exempt, or nil if it is closed. The server generates a name after the namespace is
// stamped, so the part that it generates must not decide: with generateName, KeyNamespaces exempts nothing.
func (l *ExemptionList) Exempt(c Creation) *Exemption {
	if exemption := l.find(KeyNamespaces, func(exempt string) bool { return c.GenerateName == "" && exempt == c.Name }); exemption != nil {
		return exemption
	}
	if exemption := l.exemptPrefix(c.Name, c.GenerateName); exemption != nil {
		return exemption
	}
	if exemption := l.find(KeyUsers, func(user string) bool { return user == c.Creator }); exemption != nil {
		return exemption
	}
	isOfCreator := func(group string) bool { return slices.Contains(c.Groups, group) }
	if exemption := l.find(KeyGroups, isOfCreator); exemption != nil {
		return exemption
	}
	if len(l.entries[KeyOnlyGroups]) > 0 && l.find(KeyOnlyGroups, isOfCreator) == nil {
		return &Exemption{Key: KeyOnlyGroups}
	}
	return nil
}

// ExemptName returns why a namespace that exists is exempt by its name, or nil. The name is final, so KeyNamespaces exempts it
// even if the server generated the name.
func (l *ExemptionList) ExemptName(name, generateName string) *Exemption {
	if exemption := l.find(KeyNamespaces, func(exempt string) bool { return exempt == name }); exemption != nil {
		return exemption
	}
	return l.exemptPrefix(name, generateName)
}

// exemptPrefix returns the entry of KeyNamePrefixes that exempts a name, or nil. generateName must have the prefix, too.
func (l *ExemptionList) exemptPrefix(name, generateName string) *Exemption {
	return l.find(KeyNamePrefixes, func(prefix string) bool {
		return strings.HasPrefix(name+generateName, prefix) &&
			(name == "" || strings.HasPrefix(name, prefix)) && (generateName == "" || strings.HasPrefix(generateName, prefix))
	})
}

// Values returns the entries of a key.
func (l *ExemptionList) Values(key string) (values []string) {
	for _, entry := range l.entries[key] {
		values = append(values, entry.Value)
	}
	return values
}

// Len returns the number of entries of all keys.
func (l *ExemptionList) Len() int {
	count := 0
	for _, entries := range l.entries {
		count += len(entries)
	}
	return count
}

func (l *ExemptionList) find(key string, matches func(value string) bool) *Exemption {
	for _, entry := range l.entries[key] {
		if matches(entry.Value) {
			return &entry
		}
	}
	return nil
}
