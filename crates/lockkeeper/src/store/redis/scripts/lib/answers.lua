-- The first number of a reply to an acquire. GRANTED: token (0: none). BUSY: ms until something changes by itself (-1: not known),
-- how many are ahead (-1: no queue). WRONG_KIND: number of the kind. WRONG_SIZE, WRONG_COUNT: size. The rest stand alone.
local GRANTED, BUSY, LATE, WRONG_KIND, FOREIGN, WRONG_SIZE, WRONG_COUNT = 1, 0, -1, -2, -3, -4, -5

