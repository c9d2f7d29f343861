// Command release packs Brim for others: for each platform an archive with the
// program, documents, manual pages, completions, and the licences of all that is
// compiled into it; beside them their checksums. `make release` runs it.
//
//	checkout ─▶ stamp ─┬─▶ go build for this machine ─▶ manual pages, completions ─┐
//	                   └─▶ go build for each platform ─────────────────────────────┴─▶ archives ─▶ SHA256SUMS
//
// The same commit and the same Go give the same bytes on any machine: nothing
// in an archive has the time, the place or the owner of the build.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing/fstest"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

// platforms are what a release is for, as GOOS/GOARCH.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"}

// documents of the checkout go into every archive at the same place, and those
// below folders too.
var (
	documents = []string{
		"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "deploy/README.md", "deploy/RUNBOOK.md", "deploy/mongodb/roles.js", "deploy/balancer/nginx.conf",
	}
	completions = map[string]string{"bash": "brim.bash", "zsh": "_brim", "fish": "brim.fish", "powershell": "brim.ps1"} // names that shells look for
)

// A release says what to pack.
type release struct {
	root      string // of the checkout
	out       string // folder of the archives
	scratch   string // folder of what is built; what is there is not built again
	version   string // v1.2.0, or what git describe makes of a commit between releases
	revision  string // of the commit, with "+dirty" if the checkout had changes
	date      time.Time
	platforms []string
	flags     []string // of go build
	env       []string // NAME=value, over that of this process
	log       io.Writer

	compression int // of .tar.gz, a level of gzip
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	r := &release{log: stderr, compression: gzip.DefaultCompression, flags: []string{"-trimpath", "-buildvcs=false"}, env: []string{"CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT="}}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&r.root, "root", ".", "the checkout")
	flags.StringVar(&r.out, "out", "dist", "folder of the archives; those of an earlier release are replaced")
	version := flags.String("version", "", "version to stamp; empty: what git describe says")
	list := flags.String("platforms", strings.Join(platforms, ","), "what to build for")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("release takes no arguments, and was given %q", flags.Args())
	}
	r.platforms = strings.Split(*list, ",")
	for _, name := range r.platforms {
		if !slices.Contains(platforms, name) {
			return fmt.Errorf("--platforms %q does not fit; allowed: %s", name, strings.Join(platforms, ", "))
		}
	}
	if err := r.readStamp(ctx, *version); err != nil {
		return err
	}
	var err error
	if r.scratch, err = os.MkdirTemp("", "brim-release-"); err != nil {
		return fmt.Errorf("make a folder to build in: %w", err)
	}
	defer func() { _ = os.RemoveAll(r.scratch) }() // temporary anyway
	paths, err := r.pack(ctx)
	for _, name := range paths {
		_, _ = fmt.Fprintln(stdout, name)
	}
	return err
}

// versionForm is what can be in the name of a file and in the stamp.
var versionForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+_-]{0,99}$`)

// readStamp asks git about the checkout. version, if not empty, replaces what
// git describe says.
func (r *release) readStamp(ctx context.Context, version string) error {
	var answers []string
	for _, command := range []string{"rev-parse HEAD", "status --porcelain", "show --no-patch --format=%cI HEAD", "describe --tags --always --dirty"} {
		answer, err := output(exec.CommandContext(ctx, "git", append([]string{"-C", r.root}, strings.Fields(command)...)...))
		if err != nil {
			return err
		}
		answers = append(answers, answer)
	}
	r.revision, r.version = answers[0], version
	if answers[1] != "" {
		r.revision += "+dirty"
	}
	date, err := time.Parse(time.RFC3339, answers[2])
	if err != nil {
		return fmt.Errorf("read the commit's date: %w", err)
	}
	r.date = date.UTC()
	if version == "" {
		r.version = answers[3]
	}
	if !versionForm.MatchString(r.version) {
		return fmt.Errorf("version %q does not fit; allowed: letters, digits and . - + _, beginning with a letter or a digit", r.version)
	}
	return nil
}

// output runs a command and returns what it printed. Its error has what the
// command said.
func output(cmd *exec.Cmd) (string, error) {
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// pack makes the archives and their checksums, and returns the paths of all.
func (r *release) pack(ctx context.Context) ([]string, error) {
	for _, pattern := range []string{"brim-*.tar.gz", "brim-*.zip", "SHA256SUMS"} {
		old, _ := filepath.Glob(filepath.Join(r.out, pattern)) // the patterns are well formed
		for _, name := range old {
			if err := os.Remove(name); err != nil {
				return nil, fmt.Errorf("remove an earlier archive: %w", err)
			}
		}
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the archives: %w", err)
	}
	common, err := r.common(ctx)
	if err != nil {
		return nil, err
	}
	var paths []string
	var sums bytes.Buffer
	for _, platform := range r.platforms {
		name, archive, err := r.packOne(ctx, platform, maps.Clone(common))
		if err != nil {
			return nil, fmt.Errorf("pack for %s: %w", platform, err)
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(archive), name)
		paths = append(paths, filepath.Join(r.out, name))
		if err := os.WriteFile(paths[len(paths)-1], archive, 0o644); err != nil {
			return nil, fmt.Errorf("write an archive: %w", err)
		}
	}
	name := filepath.Join(r.out, "SHA256SUMS")
	if err := os.WriteFile(name, sums.Bytes(), 0o644); err != nil {
		return nil, fmt.Errorf("write checksums: %w", err)
	}
	return append(paths, name), nil
}

// common is what is the same in all archives, by name.
func (r *release) common(ctx context.Context) (map[string][]byte, error) {
	files := make(map[string][]byte)
	for _, name := range documents {
		content, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return nil, fmt.Errorf("read a document: %w", err)
		}
		files[name] = content
	}
	if err := addFolder(files, filepath.Join(r.root, "docs"), "docs"); err != nil {
		return nil, err
	}
	program, err := r.build(ctx, runtime.GOOS+"/"+runtime.GOARCH) // it writes the manual pages and completions of all
	if err != nil {
		return nil, err
	}
	manuals := filepath.Join(r.scratch, "man")
	if _, err := output(exec.CommandContext(ctx, program, "man", manuals)); err != nil {
		return nil, err
	}
	if err := addFolder(files, manuals, "man/man1"); err != nil {
		return nil, err
	}
	for shell, name := range completions {
		text, err := output(exec.CommandContext(ctx, program, "completion", shell))
		if err != nil {
			return nil, err
		}
		files["completions/"+name] = []byte(text + "\n")
	}
	return files, nil
}

// addFolder adds the files below a folder, without programs.
func addFolder(files map[string][]byte, from, to string) error {
	folder := os.DirFS(from)
	return fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) == ".go" {
			return err
		}
		files[path.Join(to, name)], err = fs.ReadFile(folder, name)
		return err
	})
}

// packOne returns the archive for a platform and its name.
func (r *release) packOne(ctx context.Context, platform string, files map[string][]byte) (name string, archive []byte, err error) {
	program, err := r.build(ctx, platform)
	if err != nil {
		return "", nil, err
	}
	if files[filepath.Base(program)], err = os.ReadFile(program); err != nil {
		return "", nil, err
	}
	if files["LICENSES-OF-OTHERS.txt"], err = r.licences(ctx, platform); err != nil {
		return "", nil, err
	}
	if strings.HasPrefix(platform, "linux/") {
		if err := addFolder(files, filepath.Join(r.root, "deploy", "systemd"), "deploy/systemd"); err != nil {
			return "", nil, err
		}
	}
	folder := "brim-" + r.version + "-" + strings.ReplaceAll(platform, "/", "-")
	packed := make(fstest.MapFS)
	for name, content := range files {
		mode := fs.FileMode(0o644)
		if name == filepath.Base(program) {
			mode = 0o755
		}
		name = path.Join(folder, name)
		packed[name] = &fstest.MapFile{Data: content, Mode: mode, ModTime: r.date}
		for name = path.Dir(name); name != "."; name = path.Dir(name) {
			packed[name] = &fstest.MapFile{Mode: fs.ModeDir | 0o755, ModTime: r.date}
		}
	}
	var out bytes.Buffer
	if strings.HasPrefix(platform, "windows/") {
		z := zip.NewWriter(&out)
		err = errors.Join(z.AddFS(packed), z.Close())
		return folder + ".zip", out.Bytes(), err
	}
	z, err := gzip.NewWriterLevel(&out, r.compression)
	if err != nil {
		return "", nil, err
	}
	t := tar.NewWriter(z)
	err = errors.Join(t.AddFS(packed), t.Close(), z.Close())
	return folder + ".tar.gz", out.Bytes(), err
}

// build compiles the program for a platform, unless it is there, and returns
// its file.
func (r *release) build(ctx context.Context, platform string) (string, error) {
	program := filepath.Join(r.scratch, strings.ReplaceAll(platform, "/", "-"), "brim")
	if strings.HasPrefix(platform, "windows/") {
		program += ".exe"
	}
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	_, _ = fmt.Fprintln(r.log, "building for", platform)
	stamp := r.version + " " + r.revision + " " + r.date.Format(time.RFC3339)
	args := append([]string{"build"}, r.flags...)
	args = append(args, "-ldflags", "-s -w -X 'main.stamp="+stamp+"'", "-o", program, "./cmd/brim")
	_, err := output(r.goCommand(ctx, platform, args...))
	return program, err
}

// goCommand is a command of the Go toolchain for a platform.
func (r *release) goCommand(ctx context.Context, platform string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.root
	system, machine, _ := strings.Cut(platform, "/")
	cmd.Env = slices.Concat(os.Environ(), r.env, []string{"GOOS=" + system, "GOARCH=" + machine})
	return cmd
}

// licences returns the licences of all that is compiled into the program for a
// platform, Go itself first. Most of them ask for nothing but to be passed on.
func (r *release) licences(ctx context.Context, platform string) ([]byte, error) {
	root, err := output(r.goCommand(ctx, platform, "env", "GOROOT"))
	if err != nil {
		return nil, err
	}
	list, err := output(r.goCommand(ctx, platform, "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}\t{{.Dir}}{{end}}{{end}}", "./cmd/brim"))
	if err != nil {
		return nil, err
	}
	modules := strings.Split(list, "\n")
	slices.Sort(modules)
	var text bytes.Buffer
	text.WriteString("Brim is under the licence in LICENSE. Compiled into it are these, under their own.\n")
	if err := addLicences(&text, "Go "+runtime.Version(), root); err != nil {
		return nil, err
	}
	for _, line := range slices.Compact(modules) {
		if module, dir, ok := strings.Cut(line, "\t"); ok { // else Go's own packages, or Brim's
			if err := addLicences(&text, module, dir); err != nil {
				return nil, err
			}
		}
	}
	return text.Bytes(), nil
}

var licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|unlicense)`)

// addLicences adds those in a module's folder. A module without one is an error:
// nothing allows us to distribute it.
func addLicences(text *bytes.Buffer, module, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for the licence of %s: %w", module, err)
	}
	found := false
	for _, entry := range entries {
		if entry.IsDir() || !licenceName.MatchString(entry.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return fmt.Errorf("read the licence of %s: %w", module, err)
		}
		found = true
		fmt.Fprintf(text, "\n%s\n%s: %s\n\n%s\n", strings.Repeat("=", 80), module, entry.Name(), bytes.TrimSpace(content))
	}
	if !found {
		return fmt.Errorf("find the licence of %s: there is none in %s", module, dir)
	}
	return nil
}
