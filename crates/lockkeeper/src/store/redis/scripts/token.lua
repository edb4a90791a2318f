-- Draws the next token of the counter KEYS[1], for a grant at another server.
--
-- Promises: it is larger than all that the counter gave out.
--
-- Reply: the token

return next_token(KEYS[1], 0)
