package config_test

import (
	"fmt"
	"os"

	"github.com/goucx/goucx/config"
)

var ringCells = config.New("SHM_RING_CELLS", "32", config.Int(2, 65536), "cells", "Cells of a ring at its start.")

func ExampleLoad() {
	set, warnings, err := config.Load(
		config.Options{Env: []string{"UCX_SHM_RING_CELLS=64", "UCX_SHM_RING_CELS=128"}, Dirs: []string{}},
		config.Table{Section: "shm", Settings: []config.Setting{ringCells}},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, w := range warnings {
		fmt.Println(w)
	}
	fmt.Println(ringCells.Get(set), "from", set.Origin("SHM_RING_CELLS"))
	// Output:
	// unknown setting UCX_SHM_RING_CELS (environment UCX_SHM_RING_CELS); did you mean UCX_SHM_RING_CELLS?
	// 64 from environment UCX_SHM_RING_CELLS
}

func ExampleSet_With() {
	set, err := (*config.Set)(nil).With(map[string]string{"log-level": "debug"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(config.LogLevel.Get(set), "from", set.Origin("LOG_LEVEL"))
	// Output: debug from flag --log-level
}

func ExampleSet_WriteConf() {
	set, _, err := config.Load(config.Options{Env: []string{}, Dirs: []string{}})
	if err == nil {
		err = set.WriteConf(os.Stdout, false)
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// UCX_STRICT=n
	// UCX_LOG_LEVEL=WARN
	// UCX_LOG_FILE=
	// UCX_WARN_UNUSED_ENV_VARS=y
}
