package main

import (
	"archive/tar"
	"archive/zip"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// entry is a file in an archive: that at path, or with content.
type entry struct {
	name       string // below the archive's folder, with slashes
	path       string
	content    []byte
	executable bool
}

func (e entry) read() ([]byte, error) {
	if e.path == "" {
		return e.content, nil
	}
	return os.ReadFile(e.path)
}

func (e entry) mode() os.FileMode {
	if e.executable {
		return 0o755
	}
	return 0o644
}

// archived is what an archive has.
type archived struct {
	folder  string
	entries []entry
	at      time.Time // of every file
}

// adder takes files into an archive of some form.
type adder interface {
	add(name string, mode os.FileMode, content []byte) error
	close() error
}

// writeArchive writes an archive whose form the name tells, in the order of the
// names, whatever order the files were found in.
func writeArchive(w io.Writer, name string, a archived) error {
	slices.SortFunc(a.entries, func(x, y entry) int { return cmp.Compare(x.name, y.name) })
	var into adder = newTarball(w, a.at)
	if strings.HasSuffix(name, ".zip") {
		into = &zipped{zip.NewWriter(w), a.at}
	}
	for _, e := range a.entries {
		content, err := e.read()
		if err != nil {
			return fmt.Errorf("read what is to be packed: %w", err)
		}
		if err := into.add(path.Join(a.folder, e.name), e.mode(), content); err != nil {
			return fmt.Errorf("pack %s: %w", e.name, err)
		}
	}
	if err := into.close(); err != nil {
		return fmt.Errorf("finish the archive: %w", err)
	}
	return nil
}

// tarball is a .tar.gz without a trace of who made it and when.
type tarball struct {
	tar *tar.Writer
	zip *gzip.Writer
	at  time.Time
}

func newTarball(w io.Writer, at time.Time) *tarball {
	z := gzip.NewWriter(w)
	return &tarball{tar: tar.NewWriter(z), zip: z, at: at}
}

func (t *tarball) add(name string, mode os.FileMode, content []byte) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(mode), Size: int64(len(content)), ModTime: t.at, Format: tar.FormatPAX}
	if err := t.tar.WriteHeader(header); err != nil {
		return err
	}
	_, err := t.tar.Write(content)
	return err
}

func (t *tarball) close() error { return errors.Join(t.tar.Close(), t.zip.Close()) }

// zipped is a .zip.
type zipped struct {
	zip *zip.Writer
	at  time.Time
}

func (z *zipped) add(name string, mode os.FileMode, content []byte) error {
	header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: z.at}
	header.SetMode(mode)
	w, err := z.zip.CreateHeader(header)
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}

func (z *zipped) close() error { return z.zip.Close() }

// writeFile makes a file by write; it is not there if that goes wrong.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("make %s: %w", name, err)
	}
	err = write(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(name))
	}
	return nil
}
