package redisstore

// BoardSource is the script of a Board.
var BoardSource = boardSource

// Known reports how many cool-downs b keeps.
func Known(b *Board) int { return int(b.open().known.count.Load()) }
