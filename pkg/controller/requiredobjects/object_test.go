/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package requiredobjects

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		texts []string
		want  []Object
		err   string
	}{
		"none":            {nil, nil, ""},
		"the default":     {[]string{"serviceaccounts/default", "configmaps/kube-root-ca.crt"}, ByKubernetes(), ""},
		"a group":         {[]string{"quotas.example.com/team"}, []Object{{schema.GroupResource{Group: "example.com", Resource: "quotas"}, "team"}}, ""},
		"no name":         {[]string{"serviceaccounts"}, nil, `"serviceaccounts": write resource[.group]/name, such as serviceaccounts/default`},
		"an empty name":   {[]string{"serviceaccounts/"}, nil, `"serviceaccounts/": write resource[.group]/name, such as serviceaccounts/default`},
		"no resource":     {[]string{"/default"}, nil, `"/default": write resource[.group]/name, such as serviceaccounts/default`},
		"another segment": {[]string{"pods/web/log"}, nil, `"pods/web/log": the name may not contain '/'`},
		"twice":           {[]string{"pods/a", "pods/a"}, nil, `"pods/a": it is listed twice`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(test.texts)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if message := errorText(err); message != test.err {
				t.Errorf("error %q, want %q", message, test.err)
			}
			for i := range got {
				if got[i].String() != test.texts[i] {
					t.Errorf("%q is written as %q", test.texts[i], got[i])
				}
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
