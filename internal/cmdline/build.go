package cmdline

import (
	"cmp"
	"regexp"
	"runtime"
	"runtime/debug"
)

// Build is the build information of a binary.
type Build struct {
	Version string `json:"version"`
	// Revision is that of the source tree or, of a module from a proxy, the one in its version.
	Revision string `json:"revision"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// pseudoVersion matches the version of a commit without a tag, with the first 12 digits of its
// revision.
var pseudoVersion = regexp.MustCompile(`[-.]\d{14}-([0-9a-f]{12})(\+|$)`)

// Info returns the build information of this binary, which is empty if it was built without modules.
func Info() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return &debug.BuildInfo{}
}

// BuildOf returns the version and the revision in the build information.
func BuildOf(info *debug.BuildInfo) Build {
	v := Build{
		Version: cmp.Or(info.Main.Version, "(devel)"), Revision: "<unknown>",
		Go: cmp.Or(info.GoVersion, runtime.Version()), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if m := pseudoVersion.FindStringSubmatch(v.Version); m != nil {
		v.Revision = m[1]
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// ShortRevision returns a commit's first seven digits, as git prints it, and whether the source tree
// had changes.
func (b Build) ShortRevision() string {
	short := b.Revision
	if len(short) >= 40 {
		short = short[:7]
	}
	if b.Modified {
		short += " (modified)"
	}
	return short
}
