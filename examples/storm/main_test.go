package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMistakesAreExplained(t *testing.T) {
	for args, want := range map[string]string{
		"-runs 0":      "-runs is 0: it must be from 1 to 200; see -h",
		"-runs many":   `invalid value "many" for flag -runs: parse error; see -h`,
		"-only spike":  `-only is "spike": there is no such experiment; -list lists them; see -h`,
		"-fast":        "flag provided but not defined: -fast; see -h",
		"collapse":     `unexpected argument "collapse"; see -h`,
		"-svg a b.svg": `unexpected argument "b.svg"; see -h`,
	} {
		err := run(t, strings.Fields(args), io.Discard, io.Discard)
		assert.EqualError(t, err, want, args)
		assert.Equal(t, 2, exitCode(err), args)
	}
}

func TestHelpDocumentsEachFlag(t *testing.T) {
	var stderr bytes.Buffer
	err := run(t, []string{"-h"}, io.Discard, &stderr)
	assert.ErrorIs(t, err, flag.ErrHelp)
	assert.Zero(t, exitCode(err))
	for _, name := range []string{"runs", "svg", "only", "list"} {
		assert.Regexp(t, "\n  -"+name+"\\b", stderr.String())
	}
}

func TestThereIsAListOfTheExperiments(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t, []string{"-list"}, &out, io.Discard))
	assert.Equal(t, len(experiments), strings.Count(out.String(), "\n"))
	for _, e := range experiments {
		assert.Regexp(t, "(?m)^"+e.name+" +"+regexp.QuoteMeta(e.title)+"$", out.String())
	}
}

func TestADirectoryThatIsMissingFailsAtTheStart(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	err := run(t, []string{"-svg", missing}, io.Discard, io.Discard)
	assert.EqualError(t, err, "-svg: there is no directory "+missing)
	assert.Equal(t, 1, exitCode(err))
}

func TestABrokenBoundFails(t *testing.T) {
	f := findings{bounds: []bound{{"calls lost", 3.14159, 2}, {"runs that stay down", 0, 0}}}
	err := f.broken()
	assert.EqualError(t, err, "calls lost: 3.142, at most 2: BROKEN")
	assert.Equal(t, 1, exitCode(err))
	assert.NoError(t, findings{}.broken())
}

// The program is what enters a bubble outside of tests, and must end as programs do.
func TestTheProgramShowsWhatIsPublishedBesideWhatItFinds(t *testing.T) {
	program := filepath.Join(t.TempDir(), "storm.exe")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(out))

	dir := t.TempDir()
	out, err = exec.Command(program, "-only", "collapse", "-runs", "2", "-svg", dir).CombinedOutput()
	require.NoError(t, err, string(out))
	for _, text := range []string{collapse.source, "61 of 80", "naive retry loop    │", "bound: heed: calls lost", "kept"} {
		assert.Contains(t, string(out), text)
	}
	assert.NotContains(t, string(out), failures.source)
	assert.NotContains(t, string(out), "PASS", "of the testing package")

	var exit *exec.ExitError
	out, err = exec.Command(program, "-runs", "0").CombinedOutput()
	require.True(t, errors.As(err, &exit))
	assert.Equal(t, 2, exit.ExitCode())
	assert.Equal(t, "storm: -runs is 0: it must be from 1 to 200; see -h\n", string(out))

	// Another process, and nothing of the picture is another.
	again := runCollapse(t, 2).picture
	svg, err := os.ReadFile(filepath.Join(dir, again.file))
	require.NoError(t, err)
	assert.Equal(t, string(again.svg()), string(svg))
	wellFormed(t, svg)
}

func TestThePictureSaysWhatItShows(t *testing.T) {
	p := picture{title: `"a" <&> b`, panels: []panel{
		{name: "<one>", figure: "1 of 2", kind: bad, xs: []float64{1, 2}, most: 4, ticks: []tick{{0, "0"}, {2, "2"}},
			lines: []line{{ys: []float64{1, 2}}, {"one", bad, []float64{2, 9}}}},
		{name: "two", xs: []float64{1, 2}, most: 4, ticks: []tick{{0, "0"}, {2, "2"}},
			lines: []line{{"a", ours, []float64{1, 1}}, {"b", other, []float64{1, 1}}}},
	}}
	all := wellFormed(t, p.svg())
	for _, text := range []string{`"a" <&> b`, "<one>", "1 of 2", "a 1.00", "b 1.00"} {
		assert.Contains(t, all, text)
	}
	assert.Contains(t, string(p.svg()), `class="bad" d="M`)

	var out bytes.Buffer
	p.note = "shares"
	p.draw(&out)
	assert.Contains(t, out.String(), "one  │"+strings.Repeat("▄", 21)+strings.Repeat("█", 21)+"│ 1 of 2\n")
	assert.Contains(t, out.String(), "\n      two\na    │")
}

func wellFormed(t *testing.T, svg []byte) (text string) {
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return text
		}
		require.NoError(t, err)
		if s, ok := token.(xml.CharData); ok {
			text += string(s) + "\n"
		}
	}
}
