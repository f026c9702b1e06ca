package main

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// versionView is the build information of the binary.
type versionView struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func versionOf(info *debug.BuildInfo) versionView {
	v := versionView{
		Version: cmp.Or(info.Main.Version, "(devel)"), Revision: "<unknown>",
		Go: cmp.Or(info.GoVersion, runtime.Version()), Platform: runtime.GOOS + "/" + runtime.GOARCH,
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

func buildInfo() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return &debug.BuildInfo{} // built without modules
}

// version prints -v.
func (t *tool) version() error {
	v := versionOf(buildInfo())
	t.document["version"] = v
	if t.json {
		return nil
	}
	modified := ""
	if v.Modified {
		modified = ", modified"
	}
	t.line("Version %s", v.Version)
	t.line("Git revision %s%s", v.Revision, modified)
	t.line("Built with: %s %s", v.Go, v.Platform)
	return nil
}

// build prints -b: the build settings that the Go tool records.
func (t *tool) build() error {
	info := buildInfo()
	for _, s := range info.Settings {
		t.line("%s=%s", s.Key, s.Value)
	}
	for _, d := range info.Deps {
		t.line("%s %s", d.Path, d.Version)
	}
	return nil
}
