"""Count the words of a book whose third chapter is missing, then restore the chapter."""

from holdfast import JobFailed
from tasks import BOOK, count, estimate, jobs, total

BOOK.mkdir(exist_ok=True)
chapters = [f"chapter-{number}.txt" for number in range(1, 6)]
for number, chapter in enumerate(chapters, start=1):
    (BOOK / chapter).write_text("word " * 1000 * number)
(BOOK / chapters[2]).unlink()

parts = [count.bind(chapter) for chapter in chapters]
exact = total.bind().options(after=parts)  # on_failed="block": wait until someone decides
rough = estimate.bind().options(after=parts, on_failed="run")
jobs.enqueue_many([*parts, exact, rough])
print(f"{len(parts)} parts and 2 jobs that wait for them: stored in one step")

print("estimate:", jobs.get(rough.id).result(timeout="1m"))
blocked = jobs.get(exact.id)
for chapter, part in zip(chapters, blocked.after, strict=True):
    print(f"  {chapter}: {part.state}")
print(f"total: {blocked.state}, because of {blocked.waits_for} of {len(blocked.after)}")
try:
    jobs.get(parts[2].id).result()
except JobFailed as error:
    print("  namely:", error)

(BOOK / chapters[2]).write_text("word " * 3000)
jobs.retry(parts[2].id)  # its success releases the jobs that wait for it
print("the chapter is found, and its job retried")
print("total:", jobs.get(exact.id).result(timeout="1m"), "words")
