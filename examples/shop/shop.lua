-- The stock of a shop. Every function is one step: no two orders get the same pen.

local function stock(article) return holdfast.key('stock/' .. article) end

-- Add articles to the stock. Returns how many there are.
holdfast.register('deliver', function(article, count) return redis.call('INCRBY', stock(article), count) end)

-- Take articles from the stock and enqueue their shipping; also an order for more, if there are few left. `ship` and `reorder`
-- are calls of tasks.
holdfast.register('order', function(article, count, ship, reorder)
  local left = tonumber(redis.call('GET', stock(article)) or 0)
  if left < count then holdfast.refuse('sold_out', 'only ' .. left .. ' left of ' .. article) end
  redis.call('DECRBY', stock(article), count)
  if left - count < 10 then holdfast.enqueue(reorder) end -- it has a unique key: one at a time
  return holdfast.enqueue(ship)
end)

-- Cancel the shipping of an order that has not begun, and put its articles back.
holdfast.register('cancel', function(article, count, id)
  local job = holdfast.get(id)
  if not job or job.state ~= 'waiting' then holdfast.refuse('too_late', 'order ' .. id .. ' is on its way') end
  holdfast.cancel(id, { reason = 'cancelled by the customer' })
  return redis.call('INCRBY', stock(article), count)
end)
