// Whatever of this app has failed for good comes here.
export default function (request) {
  const { executionId, script, errorCode, attempts } = request.payload;
  console.error(`${script} failed with ${errorCode} after ${attempts} attempts: symphony app logs ${executionId}`);
}
