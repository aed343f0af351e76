package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/examples/internal/stage"
)

func TestTheDefaultsAreThoseOfTheDocumentation(t *testing.T) {
	o, err := parse(nil, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, &options{Load: stage.Load{Workers: 50, Jobs: 200}, limit: 20, naive: 10 * time.Second, processes: 5}, o)
}

func TestBadFlagsAreNamedWithTheReason(t *testing.T) {
	for args, want := range map[string]string{
		"-workers 0":                        "-workers is 0: it must be from 1 to 1000; see -h",
		"-jobs -1":                          "-jobs is -1: it must be from 1 to 10000; see -h",
		"-limit 0":                          "-limit is 0: it must be from 1 to 10000; see -h",
		"-naive 0s":                         "-naive is 0s: it must be from 1ms to 1h0m0s; see -h",
		"-processes 0":                      "-processes is 0: it must be from 1 to 100; see -h",
		"-workers 0 -limit 0":               "-workers is 0: it must be from 1 to 1000\n-limit is 0: it must be from 1 to 10000; see -h",
		"-redis x -workers 2 -processes 3":  "-processes is 3: there must be a worker and a job for each; see -h",
		"-workers many":                     `invalid value "many" for flag -workers: parse error; see -h`,
		"-verbose":                          "flag provided but not defined: -verbose; see -h",
		"quickly":                           `unexpected argument "quickly"; see -h`,
		"-jobs 99999999999999999999999 -h":  `invalid value "99999999999999999999999" for flag -jobs: value out of range; see -h`,
		"-svg arrivals.svg another.svg":     `unexpected argument "another.svg"; see -h`,
		"-workers=5 -redis= -processes=101": "-processes is 101: it must be from 1 to 100; see -h",
	} {
		err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard)
		assert.EqualError(t, err, want, args)
		assert.Equal(t, 2, exitCode(err), args)
	}
}

func TestHelpDocumentsEachFlag(t *testing.T) {
	var stderr bytes.Buffer
	err := run(t.Context(), []string{"-h"}, io.Discard, &stderr)
	assert.ErrorIs(t, err, flag.ErrHelp)
	assert.Zero(t, exitCode(err))
	for _, name := range []string{"workers", "jobs", "limit", "naive", "svg", "redis", "processes"} {
		assert.Contains(t, stderr.String(), "\n  -"+name+" ")
	}
}

func TestAPictureThatCannotBeWrittenFailsAtTheStart(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing", "a.svg")
	assert.ErrorIs(t, run(t.Context(), []string{"-svg", missing}, io.Discard, io.Discard), os.ErrNotExist)
	assert.EqualError(t, run(t.Context(), []string{"-svg", dir}, io.Discard, io.Discard), "-svg: "+dir+" is a directory")
}

func TestAPictureThatIsNotDrawnLeavesNoFile(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	assert.ErrorIs(t, run(ctx, []string{"-svg", filepath.Join(dir, "a.svg")}, io.Discard, io.Discard), errInterrupted)
	left, err := os.ReadDir(dir)
	assert.NoError(t, err)
	assert.Empty(t, left)
}

func TestARedisThatIsNotThereFailsAtTheStart(t *testing.T) {
	err := run(t.Context(), []string{"-redis", "127.0.0.1:1"}, io.Discard, io.Discard)
	assert.ErrorContains(t, err, "-redis 127.0.0.1:1: no Redis answers there: ")
	assert.Equal(t, 1, exitCode(err))
}

func TestEachFaultIsALine(t *testing.T) {
	var out bytes.Buffer
	complain(&out, errors.Join(errors.New("one"), errors.New("two")))
	complain(&out, nil)
	complain(&out, flag.ErrHelp)
	assert.Equal(t, "workers: one\nworkers: two\n", out.String())
}

func TestAnInterruptExitsAsShellsDo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := run(ctx, nil, io.Discard, io.Discard)
	assert.ErrorIs(t, err, errInterrupted)
	assert.Equal(t, 130, exitCode(err))
}
