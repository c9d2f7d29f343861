package journal

import "encoding/binary"

// SealHead writes the right checksum into a changed header of a segment.
func SealHead(content []byte) {
	text := content[segmentHead:][:binary.LittleEndian.Uint32(content[16:])]
	binary.LittleEndian.PutUint32(content[20:], checksum(checksum(0, content[:20]), text))
}
