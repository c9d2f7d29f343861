package journal

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/brim-telemetry/brim/internal/batch"
)

// A record is a header and a payload, all numbers little endian:
//
//	 0 magic · 4 length of the payload · 8 CRC32C of the payload · 12 readings
//	16 first sequence · 24 position
//	32 the position before which everything was durable when this was written
//	40 flags · 44 CRC32C of the header, begun with that of the session's name
//
//	payload: [key: id 16, body hash 8, length of the answer 4, answer] batch
//
// That a header's checksum covers its position and its session keeps the bytes
// of another file, or of an earlier use of the same disk blocks, from being
// taken for a record.
const (
	recordMagic  = 0x6e9a7b1d
	headerSize   = 48
	keyBytes     = 16 + 8 + 4
	flagKey      = 1
	maxPayload   = 1 << 30
	maxAnswer    = 64 << 10
	headerCRCPos = 44
)

type header struct {
	length   uint32
	crc      uint32
	readings uint32
	flags    uint32
	firstSeq uint64
	position uint64
	durable  uint64
}

// next is the position behind the record.
func (h *header) next() uint64 { return h.position + headerSize + uint64(h.length) }

// checksum goes on with a CRC32C; the table is made once for the process.
func checksum(seed uint32, b []byte) uint32 {
	return crc32.Update(seed, crc32.MakeTable(crc32.Castagnoli), b)
}

// sessionSeed begins the checksums of a session's headers.
func sessionSeed(session string) uint32 { return checksum(0, []byte(session)) }

// put writes the header to the front of b.
func (h *header) put(b []byte, seed uint32) {
	binary.LittleEndian.PutUint32(b, recordMagic)
	binary.LittleEndian.PutUint32(b[4:], h.length)
	binary.LittleEndian.PutUint32(b[8:], h.crc)
	binary.LittleEndian.PutUint32(b[12:], h.readings)
	binary.LittleEndian.PutUint64(b[16:], h.firstSeq)
	binary.LittleEndian.PutUint64(b[24:], h.position)
	binary.LittleEndian.PutUint64(b[32:], h.durable)
	binary.LittleEndian.PutUint32(b[40:], h.flags)
	binary.LittleEndian.PutUint32(b[headerCRCPos:], checksum(seed, b[:headerCRCPos]))
}

// parseHeader reads the header at the front of b, which has at least
// headerSize bytes. It returns what is wrong with it, empty if nothing is.
func parseHeader(b []byte, seed uint32, position uint64, check bool) (h header, wrong string) {
	if binary.LittleEndian.Uint32(b) != recordMagic {
		return header{}, "there is no record"
	}
	if check && binary.LittleEndian.Uint32(b[headerCRCPos:]) != checksum(seed, b[:headerCRCPos]) {
		return header{}, "the checksum of the record's header is wrong"
	}
	h = header{
		length:   binary.LittleEndian.Uint32(b[4:]),
		crc:      binary.LittleEndian.Uint32(b[8:]),
		readings: binary.LittleEndian.Uint32(b[12:]),
		firstSeq: binary.LittleEndian.Uint64(b[16:]),
		position: binary.LittleEndian.Uint64(b[24:]),
		durable:  binary.LittleEndian.Uint64(b[32:]),
		flags:    binary.LittleEndian.Uint32(b[40:]),
	}
	switch {
	case h.position != position:
		return header{}, "the record belongs to another position"
	case h.length > maxPayload:
		return header{}, "the record's length is impossible"
	}
	return h, ""
}

// appendPayload adds a payload to dst.
func appendPayload(dst []byte, b *batch.Batch, key *keyed) []byte {
	if key != nil {
		dst = append(dst, key.id[:]...)
		dst = binary.LittleEndian.AppendUint64(dst, key.bodyHash)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(key.answer)))
		dst = append(dst, key.answer...)
	}
	return batch.AppendBinary(dst, b)
}

// keyed is the part of a payload that its idempotency key takes.
type keyed struct {
	id       keyID
	bodyHash uint64
	answer   []byte
}

// splitPayload returns the key of a payload, where it has one, and the encoded
// batch.
func splitPayload(payload []byte, flags uint32) (key *keyed, encoded []byte, wrong string) {
	if flags&flagKey == 0 {
		return nil, payload, ""
	}
	if len(payload) < keyBytes {
		return nil, nil, "the record's key is cut off"
	}
	k := &keyed{id: keyID(payload[:16]), bodyHash: binary.LittleEndian.Uint64(payload[16:])}
	n := uint64(binary.LittleEndian.Uint32(payload[24:]))
	if n > uint64(len(payload)-keyBytes) {
		return nil, nil, "the answer in the record is cut off"
	}
	k.answer = payload[keyBytes:][:n]
	return k, payload[keyBytes+n:], ""
}
