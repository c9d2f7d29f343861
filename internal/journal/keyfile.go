package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// The keys of a deleted segment stay in a file beside it, until all of them
// have expired:
//
//	0 magic · 4 version · 8 number of keys · 12 CRC32C of what follows
//	key: id 16, body hash 8, position behind its record 8, time 8, answer (4, …)
const (
	keysSuffix  = ".keys"
	keysMagic   = 0x4b4a5242 // "BRJK"
	keysVersion = 1
	keysHead    = 16
	keyFixed    = 16 + 8 + 8 + 8 + 4
	maxKeyFile  = 1 << 30
)

func encodeKeys(entries []keyEntry) []byte {
	b := make([]byte, keysHead, keysHead+len(entries)*(keyFixed+32))
	for i := range entries {
		e := &entries[i]
		b = append(b, e.id[:]...)
		b = binary.LittleEndian.AppendUint64(b, e.bodyHash)
		b = binary.LittleEndian.AppendUint64(b, e.end)
		b = binary.LittleEndian.AppendUint64(b, uint64(e.taken))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(e.answer)))
		b = append(b, e.answer...)
	}
	binary.LittleEndian.PutUint32(b, keysMagic)
	binary.LittleEndian.PutUint32(b[4:], keysVersion)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(entries)))
	binary.LittleEndian.PutUint32(b[12:], checksum(0, b[keysHead:]))
	return b
}

func decodeKeys(b []byte) ([]keyEntry, error) {
	if len(b) < keysHead || binary.LittleEndian.Uint32(b) != keysMagic {
		return nil, errors.New("it is not a file of keys")
	}
	if v := binary.LittleEndian.Uint32(b[4:]); v != keysVersion {
		return nil, fmt.Errorf("it has version %d; this release knows only %d", v, keysVersion)
	}
	n := binary.LittleEndian.Uint32(b[8:])
	rest := b[keysHead:]
	if binary.LittleEndian.Uint32(b[12:]) != checksum(0, rest) || uint64(n)*keyFixed > uint64(len(rest)) {
		return nil, errors.New("its checksum is wrong")
	}
	out := make([]keyEntry, 0, n)
	for range n {
		if len(rest) < keyFixed {
			return nil, errors.New("it ends too early")
		}
		e := keyEntry{
			id: keyID(rest[:16]), bodyHash: binary.LittleEndian.Uint64(rest[16:]),
			end: binary.LittleEndian.Uint64(rest[24:]), taken: int64(binary.LittleEndian.Uint64(rest[32:])),
		}
		size := uint64(binary.LittleEndian.Uint32(rest[40:]))
		if rest = rest[keyFixed:]; size > uint64(len(rest)) {
			return nil, errors.New("it ends too early")
		}
		e.answer, rest = string(rest[:size]), rest[size:]
		out = append(out, e)
	}
	return out, nil
}

// saveKeys writes the keys of a segment that is about to be deleted beside it.
func (j *Journal) saveKeys(s *segment) error {
	entries := j.keys.between(s.base, s.end)
	if len(entries) == 0 {
		return nil
	}
	content := encodeKeys(entries)
	if err := writeWhole(j.cfg.Files, j.path(s.name+keysSuffix), content); err != nil {
		return fmt.Errorf("save its idempotency keys: %w", err)
	}
	if n := len(j.keyFiles); n > 0 && j.keyFiles[n-1].name == s.name+keysSuffix { // of an attempt whose end failed
		j.keyBytes.Add(-j.keyFiles[n-1].size)
		j.keyFiles = j.keyFiles[:n-1]
	}
	j.keepKeyFile(keyFile{s.name + keysSuffix, s.end, int64(len(content))})
	return nil
}

func (j *Journal) keepKeyFile(f keyFile) {
	j.keyFiles = append(j.keyFiles, f)
	j.keyBytes.Add(f.size)
}

// saveLateKeys writes the keys of segments that had to be deleted before them.
// Until that works they are known to this process alone.
func (j *Journal) saveLateKeys() error {
	for len(j.lateKeys) > 0 {
		s := j.lateKeys[0]
		if err := j.saveKeys(s); err != nil {
			return fmt.Errorf("of journal segment %s, which is deleted: %w", s.name, err)
		}
		j.lateKeys = j.lateKeys[1:]
	}
	return nil
}

// lastKeys is the last attempt to save what is known to this process alone.
func (j *Journal) lastKeys() {
	if !j.hasFolder() {
		return
	}
	if err := j.saveLateKeys(); err != nil {
		j.cfg.Logger.Error("idempotency keys are lost: a repeated request may be stored twice", "dir", j.cfg.Dir,
			"segments", len(j.lateKeys), "err", err)
	}
}

// A keyFile is such a file, and the position behind the last of its records.
type keyFile struct {
	name string
	end  uint64
	size int64
}

// keyFileNames lists the files of keys, in the order of their segments.
func keyFileNames(files Files, dir string) ([]string, error) {
	names, err := files.List(dir)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool {
		segment, ok := strings.CutSuffix(name, keysSuffix)
		if ok {
			_, ok = segmentBase(segment)
		}
		return !ok
	}), nil
}

// loadKeys reads the keys of deleted segments. A broken file costs the keys in
// it, never a reading, so it is told and put up with.
func (j *Journal) loadKeys() error {
	names, err := keyFileNames(j.cfg.Files, j.cfg.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		base, _ := segmentBase(strings.TrimSuffix(name, keysSuffix))
		content, err := readWhole(j.cfg.Files, j.path(name), maxKeyFile)
		if err != nil {
			return err
		}
		entries, err := decodeKeys(content)
		if err != nil {
			j.cfg.Logger.Error("idempotency keys are lost: a repeated request may be stored twice", "file", j.path(name), "err", err)
		}
		kept := keyFile{name, base, int64(len(content))}
		for _, e := range entries {
			j.keys.load(e)
			kept.end = max(kept.end, e.end)
		}
		j.keepKeyFile(kept)
	}
	return j.dropKeys()
}

// dropKeys deletes the files of which every key has expired.
func (j *Journal) dropKeys() error {
	oldest, some := j.keys.oldest()
	for len(j.keyFiles) > 0 && (!some || oldest > j.keyFiles[0].end) {
		if err := j.cfg.Files.Remove(j.path(j.keyFiles[0].name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		j.keyBytes.Add(-j.keyFiles[0].size)
		j.keyFiles = j.keyFiles[1:]
	}
	return nil
}
