package block

// Unpack unpacks all columns of a block, and returns how many values they and the times are.
func (d *Decoder) Unpack(b *Block) (values int, err error) {
	err = d.decode(b, nil)
	values = len(d.times)
	for _, n := range d.counts {
		values += n
	}
	return values, err
}
