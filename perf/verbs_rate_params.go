package perf

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goucx/goucx/ucp/sharing"
	"github.com/goucx/goucx/verbs"
)

// rateFeatures are what Params.Without names.
//
// Source: "Scalable Communication Endpoints for MPI+Threads Applications", section II-B. The defaults
// of a test with all four are those of its section IV.
var rateFeatures = []string{"postlist", "unsignaled", "inlining", "blueflame"}

const (
	ratePostList   = 32
	rateUnsignaled = 64
)

// without reports whether Params.Without has a feature.
func (p *Params) without(feature string) bool {
	return slices.Contains(strings.Split(p.Without, ","), feature)
}

// rateParams returns p of a test with OpSharedPut with its defaults. Of other tests it removes what
// only that one uses.
func (p *Params) rateParams(t Test) Params {
	q := *p
	if t.Op != OpSharedPut {
		q.Unsignaled, q.Without, q.Ways = 0, "", Ways{}
		return q
	}
	choose := func(n *int, feature string, all int) {
		switch {
		case *n != 0:
		case p.without(feature):
			*n = 1
		default:
			*n = all
		}
	}
	choose(&q.PostList, "postlist", ratePostList)
	choose(&q.Unsignaled, "unsignaled", rateUnsignaled)
	if p.without("inlining") {
		q.Layout = Zcopy
	}
	return q
}

func (p *Params) checkRate(t Test) error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{t.Name}, args...)...))
	}
	q, d := p.rateParams(t), p.window(t)
	if p.Without != "" {
		for f := range strings.SplitSeq(p.Without, ",") {
			if !slices.Contains(rateFeatures, f) {
				fault("unknown feature %q; known are %s", f, strings.Join(rateFeatures, " "))
			}
		}
	}
	if q.PostList < 1 || q.PostList > maxPostList {
		fault("list of %d work requests is out of range: 1-%d", q.PostList, maxPostList)
	}
	if q.Unsignaled < 1 || q.Unsignaled > MaxWindow-1 {
		fault("%d work requests per completion are out of range: 1-%d", q.Unsignaled, MaxWindow-1)
	}
	// Before the list that requests the completion fits, Unsignaled-1 may be outstanding.
	if need := q.PostList + q.Unsignaled - 1; need > d {
		fault("lists of %d work requests with a completion for %d need a window of %d, not %d", q.PostList, q.Unsignaled, need, d)
	}
	if n := p.Size(); n < 1 || len(p.Sizes) > 1 {
		fault("a message has one piece, of at least 1 byte")
	}
	switch {
	case p.Sharing != "" && p.Ways != (Ways{}):
		fault("a sharing policy and x-way sharing exclude each other")
	case p.Sharing != "":
		if _, err := sharing.Lookup(p.Sharing); err != nil {
			fault("%w", err)
		}
	default:
		if err := p.Ways.check(p.threads()); err != nil {
			fault("%w", err)
		}
	}
	return errors.Join(errs...)
}

// inlined reports whether the messages of verbs_rate are in the work requests.
func (p *Params) inlined(a *verbs.DeviceAttr) bool {
	return p.Layout == Short && p.Size() <= int64(min(verbs.InlineLen, a.MaxInline))
}
