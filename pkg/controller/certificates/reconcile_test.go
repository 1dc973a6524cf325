/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package certificates

import (
	"crypto/x509"
	"math/rand/v2"
	"testing"
	"time"
)

const caValidity, servingValidity = 90 * 24 * time.Hour, 30 * 24 * time.Hour

func testNames() []string {
	return []string{"a.example.com", "b.example.com"}
}

// apply does in memory what the controller does.
func apply(t *testing.T, s *state, names []string, a action, now time.Time) {
	t.Helper()
	var err error
	switch a {
	case makeCA:
		former := unexpired(union(s.trusted, s.published), now)
		if s.ca, err = newCA(now, caValidity); err == nil {
			s.trusted = append([]*x509.Certificate{s.ca.certificate}, former...)
		}
	case publish:
		s.published, s.publishedSince = s.trusted, now
	case issue:
		s.serving, err = newServing(s.ca, names, now, servingValidity)
	case forget:
		s.trusted = []*x509.Certificate{s.ca.certificate}
	case rest:
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestBegin: three actions create everything.
func TestBegin(t *testing.T) {
	s, names, now := &state{}, testNames(), time.Now()
	for i, want := range []action{makeCA, publish, issue, rest} {
		got, at := next(*s, names, now)
		if got != want {
			t.Fatalf("action %d is %v, want %v", i, got, want)
		}
		if got == rest && !at.After(now.Add(15*24*time.Hour)) {
			t.Errorf("it looks again at %s", at)
		}
		apply(t, s, names, got, now)
	}
}

// TestNeverUntrusted lives through years, in which kube-apiserver learns of what is published late,
// the server reads its certificate late, the controller is away for weeks, and things are lost.
// What is served is trusted at every moment, unless a human had a hand in it.
func TestNeverUntrusted(t *testing.T) {
	type seen struct {
		at        time.Time
		published []*x509.Certificate
		serving   *x509.Certificate
	}
	seeds := uint64(10)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		s, names, now := &state{}, testNames(), time.Now()
		var history []seen
		before := func(lag time.Duration) seen {
			latest := history[0]
			for _, h := range history {
				if !h.at.After(now.Add(-lag)) {
					latest = h
				}
			}
			return latest
		}
		rotations := 0
		for step := 0; now.Before(time.Now().AddDate(3, 0, 0)); step++ {
			a, at := next(*s, names, now)
			apply(t, s, names, a, now)
			if a == makeCA {
				rotations++
			}
			if s.serving != nil {
				history = append(history, seen{now, s.published, s.serving.certificate})
				// Any kube-apiserver, any server.
				for _, lag := range []time.Duration{0, settle - time.Second} {
					for _, serverLag := range []time.Duration{0, 5 * time.Minute} {
						if served := before(serverLag).serving; !trusted(before(lag).published, served, names, now) {
							t.Fatalf("seed %d, step %d, at %s, after %v: what is served is not trusted", seed, step, now, a)
						}
					}
				}
				history = history[max(0, len(history)-50):]
			}
			switch {
			case a != rest:
				now = now.Add(time.Duration(random.IntN(2000)) * time.Millisecond)
			case random.IntN(20) == 0: // the controller is away, but not for longer than renewals allow
				now = at.Add(time.Duration(random.IntN(9*24)) * time.Hour)
			default:
				now = now.Add(min(at.Sub(now), time.Duration(1+random.IntN(48*3600))*time.Second))
			}
			switch random.IntN(200) {
			case 0:
				s.ca = nil // its Secret was deleted
			case 1:
				s.published, s.publishedSince = nil, now // an administrator applied the APIService without it
				history = nil
				a, _ := next(*s, names, now)
				apply(t, s, names, a, now)
				if a, _ = next(*s, names, now); a == publish {
					apply(t, s, names, a, now)
				}
			}
		}
		if rotations < 15 {
			t.Errorf("seed %d: only %d CAs in three years", seed, rotations)
		}
	}
}

func TestNext(t *testing.T) {
	names, now := testNames(), time.Now()
	old, err := newCA(now.Add(-70*24*time.Hour), caValidity)
	if err != nil {
		t.Fatal(err)
	}
	current, err := newCA(now.Add(-24*time.Hour), caValidity)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := newCA(now, caValidity)
	if err != nil {
		t.Fatal(err)
	}
	future, err := newCA(now.Add(time.Hour), caValidity)
	if err != nil {
		t.Fatal(err)
	}
	by := func(ca *keyPair, names []string, made time.Time) *keyPair {
		t.Helper()
		pair, err := newServing(ca, names, made, servingValidity)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	list := func(pairs ...*keyPair) []*x509.Certificate {
		var certificates []*x509.Certificate
		for _, pair := range pairs {
			certificates = append(certificates, pair.certificate)
		}
		return certificates
	}
	published := now.Add(-time.Minute)
	good := by(current, names, now.Add(-time.Hour))
	for name, test := range map[string]struct {
		s    state
		want action
	}{
		"nothing to do":              {state{current, list(current), list(current), published, good}, rest},
		"a CA that gets old":         {state{old, list(old), list(old), published, by(old, names, now.Add(-time.Hour))}, makeCA},
		"one that is not trusted":    {state{current, list(old), list(old), published, good}, makeCA},
		"one of the future":          {state{future, list(future), list(future), published, by(future, names, now)}, makeCA},
		"a former of the future":     {state{current, list(current, future), list(current, future), published, by(future, names, now.Add(time.Hour))}, issue},
		"not published":              {state{current, list(current), nil, published, good}, publish},
		"something else published":   {state{current, list(current), list(current, old), published, good}, publish},
		"no certificate":             {state{current, list(current), list(current), published, nil}, issue},
		"for other names":            {state{current, list(current), list(current), published, by(current, names[:1], now.Add(-time.Hour))}, issue},
		"that gets old":              {state{current, list(current), list(current), published, by(current, names, now.Add(-21*24*time.Hour))}, issue},
		"of another CA":              {state{current, list(current, old), list(current, old), published, by(old, names, now.Add(-time.Hour))}, issue},
		"of one that is still good":  {state{fresh, list(fresh, current), list(fresh, current), now, good}, rest},
		"a former CA":                {state{current, list(current, old), list(current, old), published, good}, forget},
		"that is in use for a while": {state{current, list(current, old), list(current, old), published, by(current, names, now.Add(-time.Minute))}, rest},
		"expired, under a fresh one": {state{fresh, list(fresh, current), list(fresh, current), published, by(current, names, now.Add(-40*24*time.Hour))}, issue},
		"missing, under a fresh CA":  {state{fresh, list(fresh), list(fresh), published, good}, issue},
	} {
		if got, _ := next(test.s, names, now); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
